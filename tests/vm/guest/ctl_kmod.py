# SPDX-License-Identifier: Apache-2.0
"""Backend kmod over the real module: limits, orders, tenants, events. Truth is nvsim's debugfs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.module.backend import KmodBackend
from detshare.ctl.core import classes, procfs
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.snapshot import AccountKind, Containment, Kind, Program, State
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.link import Link
from tests.patience import run, until
from tests.unit.root.helpers import truth
from tests.vm.guest.ctl_machine import GIB, NO_MEMORY, Hog, backend, driver, link, used
from tests.vm.guest.ctl_sim import SimDriver, SimProcess

__all__ = ["backend", "driver", "link"]  # fixtures

FOUND = [(2048, 1, False)] + [(1024, 1, False)] * 3


def program(backend: KmodBackend, process: SimProcess) -> Program:
    return next(p for p in backend.look().programs if p.id == process.id)


def test_what_is_in_force(link: Link) -> None:
    status = link.status()
    assert status.mode == genl.DETSHARE_MODE_ENFORCE
    assert status.abi in (genl.DETSHARE_ABI_BRANCH, genl.DETSHARE_ABI_EXACT)
    assert status.driver_version == procfs.driver_version()
    assert status.shield
    assert any("nvidia_unlocked_ioctl" in hook for hook in status.hooks)


def test_a_program_is_listed_as_the_driver_has_it(backend: KmodBackend, driver: SimDriver) -> None:
    process = scenario.cuda_process(driver)
    found = program(backend, process)
    assert found.state is State.RUNNING
    assert found.command == "python3 train.py"
    assert [(t.kind, len(t.channels)) for t in found.tsgs] == [(Kind.COMPUTE, 8)] + [(Kind.COPY, 4)] * 3
    assert found.compute[0].engine == "GR0"
    assert [t.slice_us for t in found.tsgs] == [t[0] for t in truth(driver, process)]
    assert found.gpus == (driver.gpus()[0].uuid,)
    assert found.memory_bytes
    driver.machine.kill(process)
    until(lambda: not any(p.id == process.id for p in backend.look().programs))


def test_a_limit_on_a_living_process(backend: KmodBackend, driver: SimDriver) -> None:
    hog = Hog(driver)
    assert hog.take(GIB)[0] == 0
    outcome = backend.set_memory(str(hog.pid), 2 * GIB)
    (change,) = outcome.changed
    assert change.limit is not None
    assert (change.limit.before, change.limit.limit) == (None, 2 * GIB)
    assert change.limit.used >= GIB
    before = used()
    assert hog.take(3 * GIB)[0] == NO_MEMORY
    assert used() == before
    status, handle = hog.take(GIB // 2)
    assert status == 0
    found = program(backend, hog.process)
    assert found.containment is Containment.KERNEL
    assert (found.memory_limit, found.refused) == (2 * GIB, 1)
    assert found.memory_bytes is not None
    assert GIB + GIB // 2 <= found.memory_bytes <= 2 * GIB
    # below what it uses: accepted, nothing is taken away, nothing more is granted
    (change,) = backend.set_memory(str(hog.pid), GIB).changed
    assert "uses more already" in change.note
    assert hog.take(1 << 16)[0] == NO_MEMORY
    assert hog.give(handle) == 0
    assert backend.set_memory(str(hog.pid), None).changed
    assert hog.take(3 * GIB)[0] == 0
    assert program(backend, hog.process).containment is Containment.NONE
    kinds = [event.kind for event in backend.drain_events()]
    assert kinds.count("refused") == 2
    assert kinds.count("limit-changed") == 3


def test_a_tenant_is_the_sum_of_its_programs(backend: KmodBackend, driver: SimDriver) -> None:
    one, two = Hog(driver, "one"), Hog(driver, "two")
    assert one.take(GIB)[0] == 0
    assert backend.tenant_add("red").changed
    assert not backend.tenant_add("red").changed
    for hog in (one, two):
        assert backend.tenant_attach(str(hog.pid), "red").changed
    assert not backend.tenant_attach(str(one.pid), "nosuch").changed
    (change,) = backend.set_memory("red", 2 * GIB).changed
    assert change.limit is not None
    assert change.limit.used >= GIB  # what a process had counts from then on
    assert two.take(2 * GIB)[0] == NO_MEMORY
    assert two.take(GIB // 2)[0] == 0
    assert one.take(GIB)[0] == NO_MEMORY
    snapshot = backend.look()
    (tenant,) = snapshot.tenants
    assert (tenant.name, set(tenant.pids)) == ("red", {one.pid, two.pid})
    assert {p.tenant for p in snapshot.programs if p.id.pid in tenant.pids} == {"red"}
    assert backend.tenant_del("red").changed
    assert one.take(GIB)[0] == 0
    assert backend.look().tenants == ()


def test_children_that_are_made_later_belong_to_the_tenant(backend: KmodBackend, driver: SimDriver) -> None:
    parent = Hog(driver, "parent")
    backend.tenant_add("family")
    backend.tenant_attach(str(parent.pid), "family")
    backend.set_memory("family", GIB)
    child = Hog(driver, process=driver.machine.fork(parent.process))
    assert child.take(2 * GIB)[0] == NO_MEMORY
    backend.tenant_del("family")


def test_a_cgroup_and_a_process_hold_at_once(backend: KmodBackend, driver: SimDriver) -> None:
    process = driver.machine.spawn("hog")
    process.container = "ab" * 32
    hog = Hog(driver, process=process)
    (change,) = backend.set_memory("ab" * 6, 2 * GIB).changed
    assert change.limit is not None
    assert change.limit.account == "cgroup /" + "ab" * 32
    backend.set_memory(str(hog.pid), 4 * GIB)
    assert hog.take(3 * GIB)[0] == NO_MEMORY
    assert hog.take(GIB)[0] == 0
    found = program(backend, hog.process)
    assert sorted((a.kind.value, a.limit) for a in found.limits) == [("cgroup", 2 * GIB), ("pid", 4 * GIB)]
    assert found.memory_limit == 2 * GIB
    assert backend.set_memory("/" + "ab" * 32, None).changed


@pytest.mark.parametrize("klass", ["high", "low"])
def test_a_class_goes_through_the_kernel_and_back(backend: KmodBackend, driver: SimDriver, klass: str) -> None:
    process = scenario.cuda_process(driver)
    wanted = classes.CLASSES[klass]
    (change,) = backend.set_priority(str(process.id.pid), klass).changed
    assert [(t.before_us, t.slice_us, t.level) for t in change.tsgs] == [
        (2048, wanted.slice_us, wanted.level.name.lower())
    ]
    assert truth(driver, process)[0] == (wanted.slice_us, int(wanted.level), False)
    assert truth(driver, process)[1:] == FOUND[1:]
    found = program(backend, process)
    assert (found.klass, found.compute[0].level) == (klass, wanted.level)
    assert driver.calls.total() == 0  # nothing was asked on the program's own descriptors
    backend.set_priority(str(process.id.pid), "normal")
    assert truth(driver, process) == FOUND
    assert backend.release(str(process.id.pid)).changed
    assert truth(driver, process) == FOUND
    assert not backend.release(str(process.id.pid)).changed


def test_a_class_before_the_context_holds_from_its_first_group_on(backend: KmodBackend, driver: SimDriver) -> None:
    process = driver.machine.spawn("python3 serve.py")
    (change,) = backend.set_priority(str(process.id.pid), "high").changed
    assert change.stands
    scenario.make_context(driver, process)  # nobody looks in between
    until(lambda: truth(driver, process)[0][:2] == (classes.CLASSES["high"].slice_us, 2))


def test_weights_and_raw_slices(backend: KmodBackend, driver: SimDriver) -> None:
    one, two = scenario.cuda_process(driver, "one"), scenario.two_contexts(driver, "two")
    backend.set_weight(str(one.id.pid), 3)
    backend.set_weight(str(two.id.pid), 3)
    first, second = (sum(t[0] for t in truth(driver, p) if t[0] != 1024) for p in (one, two))
    assert first == second  # more channel groups give no more time
    backend.set_weight(str(two.id.pid), 1)
    first, second = (sum(t[0] for t in truth(driver, p) if t[0] != 1024) for p in (one, two))
    assert first == 3 * second
    assert program(backend, one).weight == 3
    backend.set_slice(str(one.id.pid), 777)
    assert truth(driver, one)[0][0] == 777


def test_a_slice_that_the_program_sets_itself_is_overruled(backend: KmodBackend, driver: SimDriver) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "low")
    driver.gpu_models[0].set_slice(driver.gpu_models[0].tsgs[0], 3000)

    def overruled() -> bool:
        backend.look()
        return truth(driver, process)[0][0] == classes.CLASSES["low"].slice_us

    until(overruled)


def test_a_pause_is_the_kernels(backend: KmodBackend, driver: SimDriver) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "low")
    assert backend.pause(str(process.id.pid)).changed
    assert truth(driver, process)[0][2]
    found = program(backend, process)
    assert (found.state, found.klass) == (State.PAUSED, "low")
    assert found.activity is not None
    assert (found.activity.state, found.activity.reasons) == ("paused", ("order",))
    assert backend.resume(str(process.id.pid)).changed
    assert not any(off for _, _, off in truth(driver, process))
    assert truth(driver, process)[0][0] == classes.CLASSES["low"].slice_us
    assert "not paused" in backend.resume(str(process.id.pid)).skipped[0].reason
    assert driver.calls.total() == 0  # nothing was asked on the program's own descriptors


def test_rows_of_our_classes_stand_in_the_kernel(backend: KmodBackend, link: Link) -> None:
    snapshot = backend.look()
    assert {row.name: row.turn_us for row in snapshot.classes} == {n: s.turn_us for n, s in classes.CLASSES.items()}
    backend.set_class("low", {"turn_us": 70_000})
    backend.look()
    (low,) = (row for row in link.classes() if row.name == "low")
    assert (low.turn_us, low.slice_us, low.turn_rank) == (70_000, classes.CLASSES["low"].slice_us, 2)
    backend.set_class("low", None)
    (low,) = (row for row in link.classes() if row.name == "low")
    assert low.turn_us == classes.TURN_US
    link.del_class("low")
    backend.look()
    assert "low" in {row.name for row in link.classes()}
    backend.set_class("mine", {"weight": 3})
    (mine,) = (row for row in link.classes() if row.name == "mine")
    assert (mine.weight, mine.turn_us, mine.turn_rank) == (3, 0, low.turn_rank)
    backend.set_class("mine", None)
    with pytest.raises(BadRequest, match="there is no class mine"):
        backend.set_class("mine", None)
    with pytest.raises(BadRequest, match="is no class"):
        backend.set_priority("1", "mine")


def test_a_class_of_a_container_is_for_its_cgroup(backend: KmodBackend, driver: SimDriver) -> None:
    process = driver.machine.spawn("python3 train.py")
    process.container = "cd" * 32
    scenario.make_context(driver, process)
    (change,) = backend.set_priority("cd" * 6, "low").changed
    assert "cgroup /" in change.note
    assert truth(driver, process)[0][0] == classes.CLASSES["low"].slice_us
    snapshot = backend.look()
    assert [(order.name, order.text) for order in snapshot.orders] == [("/" + "cd" * 32, "class low")]
    assert backend.release("/" + "cd" * 32).changed
    assert truth(driver, process) == FOUND
    assert backend.look().orders == ()


def test_a_class_that_stands_for_a_command_is_ordered_of_the_kernel(backend: KmodBackend, driver: SimDriver) -> None:
    backend.stand({"python3 train*": "low"})
    process = scenario.opened_only(driver, "python3 train.py")
    backend.look()
    scenario.make_context(driver, process)  # no look lies between this and its class
    assert classes.CLASSES["low"].slice_us in {each[0] for each in truth(driver, process)}
    assert backend.release(str(process.id.pid)).changed
    backend.look()
    assert classes.CLASSES["low"].slice_us not in {each[0] for each in truth(driver, process)}


def test_a_reloaded_module_gets_back_what_was_wished_for(backend: KmodBackend, driver: SimDriver, link: Link) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "low")
    for row in link.orders():
        link.del_order(Target(AccountKind.PID, str(row.pid), process.id))
    assert truth(driver, process) == FOUND
    backend.look()
    assert truth(driver, process)[0][0] == classes.CLASSES["low"].slice_us


def test_closing_puts_back_and_leaves_limits(driver: SimDriver, link: Link, tmp_path: Path) -> None:
    process, hog = scenario.cuda_process(driver), Hog(driver)
    backend = KmodBackend(Link(), driver, tmp_path)
    backend.set_priority(str(process.id.pid), "low")
    backend.pause(str(process.id.pid))
    backend.set_memory(str(hog.pid), GIB)
    backend.close()
    assert truth(driver, process) == FOUND
    assert link.holds() == []
    assert (hog.pid, GIB) in [(row.pid, row.limit) for row in link.limits()]
    again = KmodBackend(Link(), driver, tmp_path)
    assert program(again, process).klass == "low"  # as asked for, taken up by the next daemon
    again.close()


def test_a_reused_pid_has_no_limit_and_no_class(backend: KmodBackend, driver: SimDriver) -> None:
    first = Hog(driver, "first")
    backend.set_memory(str(first.pid), GIB)
    backend.set_priority(str(first.pid), "high")
    driver.machine.kill(first.process)
    second = Hog(driver, process=driver.machine.spawn("second", pid=first.pid))
    assert second.take(3 * GIB)[0] == 0
    found = program(backend, second.process)
    assert (found.klass, found.memory_limit) == (None, None)


def ctl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", "/run/detshare-test", *words]
    return run(command, capture_output=True, text=True, check=False)


def test_commands_without_a_daemon(driver: SimDriver) -> None:
    hog = Hog(driver, "python hog.py")
    assert hog.take(GIB)[0] == 0
    done = ctl("set-memory", "hog.py", "2G")
    assert done.returncode == 0, done.stderr
    assert f"pid {hog.pid}: memory limit none -> 2.0G" in done.stdout
    assert hog.take(2 * GIB)[0] == NO_MEMORY
    answer = json.loads(ctl("ps", "--json").stdout)
    assert (answer["backend"], answer["proof"]) == ("kmod", "model")
    (mine,) = [p for p in answer["programs"] if p["pid"] == hog.pid]
    assert (mine["containment"], mine["memory_limit"], mine["refused"]) == ("kernel", 2 * GIB, 1)
    done = ctl("doctor")
    told = " ".join(done.stdout.split())
    assert "kmod (proof level model)" in told
    assert "in force because detshare.ko is loaded" in told
    assert "; limits hold" in told
    assert "TPC ceiling" in told
    done = ctl("set-memory", str(os.getpid() + 100_000), "2G")
    assert done.returncode == 1
    assert "there is no process" in done.stderr


def test_a_pid_that_uses_no_gpu_yet_can_be_limited(backend: KmodBackend, driver: SimDriver) -> None:
    process = driver.machine.spawn("later")
    assert backend.set_memory(str(process.id.pid), GIB).changed
    hog = Hog(driver, process=process)
    assert hog.take(2 * GIB)[0] == NO_MEMORY
