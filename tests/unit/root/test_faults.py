# SPDX-License-Identifier: Apache-2.0
"""What must hold when something breaks in the middle: nobody stays paused, nobody else is hit, nothing is lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.ctl.backends.desired import DesiredState
from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import Call, ModelDriver
from detshare.ctl.backends.model.objects import Kind
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.root import journal
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.guardian import recover
from detshare.ctl.backends.root.journal import Journal, Paused
from detshare.ctl.core import classes
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import State
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program, truth

FOUND = [(2048, 1, False)] + [(1024, 1, False)] * 3


def later(backend: RootBackend, clock: Clock, seconds: float = 3.0) -> None:
    """Let the daemon look for a while."""
    for _ in range(int(seconds / 0.25)):
        clock.sleep(0.25)
        backend.look()


def test_one_odd_program_stops_nobody_else(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    odd, good = scenario.cuda_process(driver, "odd"), scenario.cuda_process(driver, "good")
    backend.pause(str(good.id.pid))
    lost = driver.abi.status("NV_ERR_GPU_IS_LOST")
    real = driver.rm.control

    def control(*args: object) -> int:
        owned = any(args[0] is f for f in odd.fds.values())
        return lost if owned else real(*args)  # type: ignore[arg-type]

    driver.rm.control = control  # type: ignore[method-assign,assignment]
    later(backend, clock)
    assert backend.resume(str(good.id.pid)).changed
    assert truth(driver, good) == FOUND
    notes = program(backend, odd).notes
    assert any("GPU_IS_LOST" in note for note in notes)


def test_objects_freed_between_two_questions(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    file, client = next((f, c) for f in process.fds.values() if f.is_control for c in driver.rm.clients_of(f))
    memory = [h for h, n in sorted(client.objects.items()) if n.kind is Kind.OTHER]

    def free(call: Call) -> None:
        if call.name.endswith("GET_HANDLE_INFO") and memory:
            driver.rm.free(file, client.handle, memory.pop())

    driver.before_control = free
    assert len(program(backend, process).compute) == 1


def test_the_record_of_a_torn_write_harms_only_itself(tmp_path: Path) -> None:
    first = Journal(tmp_path, "model")
    first.pause(Paused(1, 2, 3, 4, 5, (6,)))
    with first.path.open("ab") as stream:
        stream.write(b'{"record":"pause","pid":10\xff')
    second = Journal(tmp_path, "model")
    second.pause(Paused(7, 8, 3, 4, 5, (6,)))
    assert list(Journal(tmp_path, "model").paused) == [ProcessId(1, 2), ProcessId(7, 8)]


def test_a_long_journal_is_rewritten_without_losing_the_newest_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_COMPACT_AFTER", 10)
    book = Journal(tmp_path, "model")
    for turn in range(40):
        process = ProcessId(1000 + turn % 3, 1)
        book.pause(Paused(process.pid, process.start, 3, 4, 5, (turn,)))
        assert Journal(tmp_path, "model").paused == book.paused
        if turn % 2:
            book.unpause(process)
    assert len(book.path.read_bytes().splitlines()) <= 12 + len(book.paused)


def test_a_pause_that_cannot_be_written_does_not_happen(
    backend: RootBackend, driver: ModelDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = scenario.cuda_process(driver)
    backend.look()
    real = os.write
    monkeypatch.setattr(journal.os, "write", lambda fd, data: real(fd, data[:40]))
    outcome = backend.pause(str(process.id.pid))
    assert not outcome.changed
    assert "journal" in outcome.skipped[0].reason
    monkeypatch.setattr(journal.os, "write", real)
    assert truth(driver, process) == FOUND
    assert backend.pause(str(process.id.pid)).changed
    backend.close()
    assert truth(driver, process) == FOUND


def test_a_full_disk_stops_neither_the_look_nor_the_restoring(
    backend: RootBackend, driver: ModelDriver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = [scenario.cuda_process(driver, f"p{n}") for n in range(3)]
    for process in living:
        backend.set_priority(str(process.id.pid), "high")

    def full(_self: Journal, _kind: str, **_values: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Journal, "_write", full)
    scenario.make_context(driver, living[0])
    later(backend, clock)
    assert any("No space" in e.text for e in backend.drain_events() if e.kind == "error")
    backend.close()
    assert [truth(driver, p)[:4] for p in living] == [FOUND] * 3


@pytest.mark.parametrize("verb", ["resume", "release"])
def test_who_runs_again_though_the_disk_is_full_is_not_shown_as_paused(
    make: Callable[[], RootBackend], driver: ModelDriver, clock: Clock, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    backend, process = make(), scenario.cuda_process(driver)
    who = str(process.id.pid)
    backend.pause(who)

    def full(_self: Journal, _kind: str, **_values: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as now:
        now.setattr(Journal, "_write", full)
        outcome = getattr(backend, verb)(who)
        assert [skip.reason for skip in outcome.skipped] == ([f"PID {who}: [Errno 28] No space left on device"]
                                                             if verb == "release" else [])  # fmt: skip
        later(backend, clock)
        assert program(backend, process).state is State.RUNNING
        assert truth(driver, process) == FOUND
    assert backend.pause(who).changed
    assert all(off for _, _, off in truth(driver, process))
    make()
    assert truth(driver, process) == FOUND


@pytest.mark.parametrize("how", ["guardian", "release"])
def test_what_a_parent_left_by_exec_is_reached_through_its_child(
    backend: RootBackend, driver: ModelDriver, tmp_path: Path, how: str
) -> None:
    parent = scenario.cuda_process(driver)
    backend.set_priority(str(parent.id.pid), "low")
    backend.pause(str(parent.id.pid))
    child = driver.machine.fork(parent)
    driver.machine.exec(parent, "sleep 60")
    if how == "guardian":
        assert recover(tmp_path, driver) == []
    else:
        backend.close()
    assert truth(driver, child) == FOUND


@pytest.mark.parametrize("again", ["idle", "normal"])
def test_a_release_that_failed_halfway_leaves_no_level_that_is_only_thought_to_stand(
    backend: RootBackend, driver: ModelDriver, clock: Clock, again: str
) -> None:
    process = scenario.two_contexts(driver)
    backend.set_priority(str(process.id.pid), "idle")
    status, calls = driver.abi.status("NV_ERR_BUSY_RETRY"), 0

    def refuse_the_second(call: Call) -> None:
        nonlocal calls
        sets = call.name == "NVA06C_CTRL_CMD_SET_TIMESLICE"
        calls += sets
        driver.inject = {call.name: status} if sets and calls == 2 else {}

    driver.before_control = refuse_the_second
    assert "BUSY_RETRY" in backend.release(str(process.id.pid)).skipped[0].reason
    driver.before_control, driver.inject = None, {}
    backend.set_priority(str(process.id.pid), again)
    later(backend, clock)
    wanted = classes.CLASSES[again]
    slices = wanted.slice_us or FOUND[0][0]
    assert [t[:2] for t in truth(driver, process) if t[0] != 1024] == [(slices, int(wanted.level))] * 2
    assert backend.release(str(process.id.pid)).changed
    assert truth(driver, process) == FOUND * 2


def test_a_closed_descriptor_is_not_a_dead_process(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.two_contexts(driver)
    backend.pause(str(process.id.pid))
    first = min(fd for fd, f in process.fds.items() if f.is_control)
    process.close(first)
    assert backend.release(str(process.id.pid)).changed
    assert truth(driver, process) == FOUND


def test_a_freed_client_is_nothing_left_to_do(backend: RootBackend, driver: ModelDriver, tmp_path: Path) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "low")
    backend.pause(str(process.id.pid))
    file, client = next((f, c) for f in process.fds.values() if f.is_control for c in driver.rm.clients_of(f))
    driver.rm.free(file, client.handle, client.handle)
    assert recover(tmp_path, driver) == []


def test_a_channel_handle_that_is_another_object_now(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    backend.pause(str(process.id.pid))
    file, client = next((f, c) for f in process.fds.values() if f.is_control for c in driver.rm.clients_of(f))
    channel = next(h for h, n in sorted(client.objects.items()) if n.kind is Kind.CHANNEL)
    driver.rm.free(file, client.handle, channel)
    device = next(h for h, n in client.objects.items() if n.kind is Kind.DEVICE)
    status, _ = driver.rm.alloc(file, client.handle, device, channel, 0x40)
    assert status == 0
    assert backend.resume(str(process.id.pid)).changed
    assert not any(off for _, _, off in truth(driver, process))


def test_a_paused_program_that_cannot_be_read_can_be_resumed(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    process = scenario.cuda_process(driver)
    backend.pause(str(process.id.pid))
    driver.inject["NVA06C_CTRL_CMD_GET_INFO"] = driver.abi.status("NV_ERR_GENERIC")
    later(backend, clock)
    assert backend.resume(str(process.id.pid)).changed
    assert truth(driver, process) == FOUND


def test_what_an_earlier_command_left_paused_is_shown_and_resumed(
    make: Callable[[], RootBackend], driver: ModelDriver, tmp_path: Path, clock: Clock
) -> None:
    process = scenario.cuda_process(driver)
    killed = RootBackend(driver, tmp_path, name="model", repair=False, clock=clock)
    killed.pause(str(process.id.pid))
    other = RootBackend(driver, tmp_path, name="model", repair=False, clock=clock)
    assert other.look(enforce=False).programs[0].state is State.PAUSED
    other.look()
    assert truth(driver, process) == FOUND


def test_a_forks_child_inherits_what_is_to_be_put_back(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    parent = scenario.cuda_process(driver)
    backend.set_priority(str(parent.id.pid), "low")
    backend.pause(str(parent.id.pid))
    child = driver.machine.fork(parent)
    driver.machine.kill(parent)
    later(backend, clock)
    backend.close()
    assert truth(driver, child) == FOUND


def test_the_guardian_reaches_a_dead_parents_client_through_the_child(
    backend: RootBackend, driver: ModelDriver, tmp_path: Path
) -> None:
    parent = scenario.cuda_process(driver)
    backend.pause(str(parent.id.pid))
    child = driver.machine.fork(parent)
    driver.machine.kill(parent)
    assert recover(tmp_path, driver) == []
    assert truth(driver, child) == FOUND


def test_two_wishes_on_one_mps_tsg_do_not_fight(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    server = programs.mps_server(driver)
    waiting = driver.machine.spawn("python3 infer.py")
    backend.set_priority(str(waiting.id.pid), "low")
    backend.set_priority(str(server.id.pid), "high")
    driver.machine.kill(waiting)
    client = programs.mps_client(driver, server)
    backend._desired.steer(client.id, backend._desired.get(server.id).__class__(klass="low"))
    later(backend, clock)
    assert truth(driver, server)[0][:2] == (classes.CLASSES["high"].slice_us, 2)
    backend.close()
    assert truth(driver, server)[0][:2] == (2048, 1)


def test_a_context_that_is_made_anew_gets_its_level_again(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "high")
    fd, file = next((n, f) for n, f in process.fds.items() if f.is_control and driver.rm.clients_of(f))
    for handle in [c.handle for c in driver.rm.clients_of(file)]:
        driver.rm.free(file, handle, handle)
    later(backend, clock, 1.0)
    scenario.make_context(driver, process)
    later(backend, clock)
    assert fd in process.fds
    assert truth(driver, process)[0][:2] == (classes.CLASSES["high"].slice_us, 2)


def test_a_slice_set_behind_our_back_is_seen_without_any_other_change(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "idle")
    later(backend, clock, 12.0)
    driver.gpu_models[0].set_slice(driver.gpu_models[0].tsgs[0], 1_000_000)
    later(backend, clock, 1.5)
    assert truth(driver, process)[0][0] == classes.CLASSES["idle"].slice_us


def test_a_long_pause_ends_with_one_resume(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    process = scenario.cuda_process(driver)
    backend.pause(str(process.id.pid))
    later(backend, clock, 12.0)
    backend.pause(str(process.id.pid))
    scenario.make_context(driver, process)
    later(backend, clock, 12.0)
    backend.resume(str(process.id.pid))
    assert not any(off for _, _, off in truth(driver, process))


def test_a_tsg_that_refuses_does_not_starve_its_neighbour(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.two_contexts(driver)
    backend.look()
    first = driver.gpu_models[0].tsgs[0]
    real = driver.gpu_models[0].set_slice

    refuse = driver.abi.status("NV_ERR_INVALID_STATE")
    control = driver.rm.control
    number = driver.abi.control("NVA06C_CTRL_CMD_SET_TIMESLICE").number

    def gate(*args: object) -> int:
        client = driver.rm.clients[args[1]]  # type: ignore[index]
        node = client.objects.get(args[2])  # type: ignore[call-overload]
        if args[3] == number and node is not None and node.tsg is first:
            return refuse
        return control(*args)  # type: ignore[arg-type]

    driver.rm.control = gate  # type: ignore[method-assign,assignment]
    outcome = backend.set_priority(str(process.id.pid), "low")
    assert "INVALID_STATE" in outcome.skipped[0].reason
    assert real is not None
    slices = [t[0] for t in truth(driver, process) if t[0] != 1024]
    assert sorted(slices) == [classes.CLASSES["low"].slice_us, 2048]


def test_a_second_gpus_context_far_from_the_first_handles(tmp_path: Path, clock: Clock) -> None:
    driver = ModelDriver(gpus=(ModelDriver().gpus()[0], programs.second_gpu()))
    backend = RootBackend(driver, tmp_path, clock=clock)
    process = programs.multi_gpu(driver)
    file, client = next(
        (f, c)
        for f in process.fds.values()
        if f.is_control
        for c in driver.rm.clients_of(f)
        if any(n.kind is Kind.TSG for n in c.objects.values())
    )
    backend.look()
    gone = driver.gpu_models[0]
    for handle in [h for h, n in client.objects.items() if n.kind is Kind.TSG and n.tsg and n.tsg.gpu is gone]:
        driver.rm.free(file, client.handle, handle)
    later(backend, clock)
    assert {t.gpu for t in program(backend, process).compute} == {driver.gpus()[1].uuid}


def test_a_context_beyond_a_long_gap_is_paused_with_the_next_look(backend: RootBackend, driver: ModelDriver) -> None:
    process = driver.machine.spawn("python3 late.py")
    _, file, client = scenario.new_client(driver, process)
    for base in (scenario.CUDA_BASE, scenario.CUDA_BASE + 3000):
        scenario.make_context(driver, process, base=base, client=(file, client))
    backend.look()
    backend.pause(str(process.id.pid))
    backend.look()
    assert all(off for _, _, off in truth(driver, process))
    backend.resume(str(process.id.pid))
    assert not any(off for _, _, off in truth(driver, process))


def test_containers_share_a_weight_without_counting_forks_and_with_newcomers(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    def worker(name: str) -> ModelProcess:
        process = scenario.cuda_process(driver, name)
        process.container = "c0ffee" + "0" * 58
        return process

    first = worker("first")
    for _ in range(4):
        driver.machine.fork(first)
    backend.set_weight("c0ffee000000", 3)
    assert truth(driver, first)[0][0] == 3 * classes.WEIGHT_UNIT_US
    second = worker("second")
    later(backend, clock)
    assert [truth(driver, p)[0][0] for p in (first, second)] == [3 * classes.WEIGHT_UNIT_US // 2] * 2
    backend.release("c0ffee000000")
    assert [truth(driver, p) for p in (first, second)] == [FOUND] * 2


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"{}",
        b'[{"pid": 1e999}]',
        b"[" * 100_000,
        json.dumps([{"pid": 1, "start": 2, "weight": "3"}]).encode(),
        json.dumps([{"pid": 1, "start": 2, "slice_us": -1}]).encode(),
        json.dumps([{"pid": 1, "start": 2, "klass": "highest"}]).encode(),
        json.dumps([{"pid": 1, "start": 2, "level": 9, "klass": "high"}, 7, None]).encode(),
    ],
)
def test_garbage_in_the_wishes_is_left_aside(
    tmp_path: Path, driver: ModelDriver, make: Callable[[], RootBackend], content: bytes
) -> None:
    (tmp_path / "desired-model.json").write_bytes(content)
    process = scenario.cuda_process(driver)
    backend = make()
    assert program(backend, process).klass is None
    assert backend.set_priority(str(process.id.pid), "low").changed
    assert [w.steers for w in map(DesiredState(tmp_path, "model").get, [process.id])] == [True]


def test_an_error_is_told_once(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "low")
    driver.inject["NVA06C_CTRL_CMD_SET_TIMESLICE"] = driver.abi.status("NV_ERR_INVALID_STATE")
    driver.gpu_models[0].set_slice(driver.gpu_models[0].tsgs[0], 3000)
    backend.drain_events()
    later(backend, clock, 20.0)
    assert sum(e.kind == "error" for e in backend.drain_events()) == 1
