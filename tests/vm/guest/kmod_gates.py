# SPDX-License-Identifier: Apache-2.0
"""Doorbell gates: nothing gets through a shut one, nothing is lost, and nobody else of the process stands still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.netlink import genl
from tests.patience import ended, run, until
from tests.vm.guest.gate_tools import Door, Gate, children, gone
from tests.vm.guest.kmod_tools import CLIENTS, MODULE, leak

EFAULT, EIO = 14, 5
LINGER_MS = 1
CLAIMS_MS = 4000


@pytest.fixture
def door() -> Iterator[Door]:
    with Door() as it:
        yield it


def shut_then_open(door: Door, *command: object) -> dict[str, object]:
    """The command waits while the gate is shut, nothing of it is counted, and when it opens it ends."""
    verb, *numbers = command
    gate = Gate(door.pid)
    with gate:
        before = door.counted()
        under_way = door.ask(str(verb), *numbers)  # type: ignore[arg-type]
        assert door.waits(under_way)
        assert door.counted() == before
    return door.end(under_way)


def faults_for_another(door: Door) -> bool:
    """Whether the gate of a stranger, shut and opened, costs a ring of this one a fault."""
    with Door() as other:
        door.do("kick", 0, 1)
        faults = Gate(door.pid).stats()["faults"]
        with Gate(other.pid):
            door.do("kick", 0, 1)
        return bool(Gate(door.pid).stats()["faults"] != faults)


def test_an_open_gate_costs_no_fault(door: Door) -> None:
    door.do("kick", 0, 10)
    before = Gate(door.pid).stats()["faults"]
    assert door.do("kick", 0, 1_000_000)["result"] == 1_000_000
    assert Gate(door.pid).stats()["faults"] == before
    assert door.counted() == 1_000_010


def test_rings_wait_while_it_is_shut_and_none_is_lost(door: Door) -> None:
    door.do("kick", 0, 1)
    done = shut_then_open(door, "kick", 0, 1000)
    assert done["result"] == 1000
    assert door.counted() == 1001


def test_a_neighbour_notices_nothing(door: Door) -> None:
    with Door() as other:
        other.do("kick", 0, 10)
        faults = Gate(other.pid).stats()["faults"]
        with Gate(door.pid):
            waiting = door.ask("kick", 0, 1)
            assert other.do("kick", 0, 100_000)["result"] == 100_000
            assert door.waits(waiting)
        door.end(waiting)
        assert Gate(other.pid).stats()["faults"] == faults


def test_a_second_mapping_is_behind_the_same_gate(door: Door) -> None:
    assert door.do("map", 1)["result"] == 0
    assert door.do("again", 2, 1)["result"] == 0
    for slot in (1, 2):
        door.do("kick", slot, 1)
        shut_then_open(door, "kick", slot, 1)
    assert Gate(door.pid).stats()["doors"] == 2
    assert door.counted() == 4


def test_mappings_made_while_it_is_shut(door: Door) -> None:
    assert door.do("arm", 1)["result"] == 0
    with Gate(door.pid):
        assert door.do("again", 2, 1)["result"] == 0
        assert door.do("map", 3)["result"] == 0
        waiting = [door.ask("kick", 2, 1), door.ask("kick", 3, 1)]
        assert all(door.waits(number) for number in waiting)
        assert door.counted() == 0
    for number in waiting:
        assert door.end(number)["result"] == 1


def test_a_duplicate_of_the_usermode_object(door: Door) -> None:
    assert door.do("dup", 1)["result"] == 0
    door.do("kick", 1, 1)
    shut_then_open(door, "kick", 1, 5)


def test_a_moved_mapping(door: Door) -> None:
    door.do("kick", 0, 1)
    assert door.do("move", 0, 0)["result"] == 0
    shut_then_open(door, "kick", 0, 1)
    with Gate(door.pid):
        assert door.do("move", 0, 0)["result"] == 0
        waiting = door.ask("kick", 0, 1)
        assert door.waits(waiting)
    assert door.end(waiting)["result"] == 1


@pytest.mark.parametrize("protect", [1, 0])
def test_pieces_of_a_split_mapping_come_back(door: Door, protect: int) -> None:
    door.do("page", 0, 8)
    assert door.do("protect", 0, 8, protect)["result"] == 0
    with Gate(door.pid):
        pass
    assert door.do("protect", 0, 12, 3)["result"] == 0
    done = door.do("page", 0, 12)
    assert (done["signal"], done["result"]) == (0, 1)
    # its neighbour may not be written to, by the program's own will
    assert door.do("page", 0, 8)["signal"] == signal.SIGSEGV
    shut_then_open(door, "page", 0, 12)
    shut_then_open(door, "kick", 0, 1)


def test_the_head_of_a_mapping_can_go(door: Door) -> None:
    assert door.do("move", 0, 8)["result"] == 0
    shut_then_open(door, "page", 0, 0)


def test_a_child_inherits_the_gate(door: Door) -> None:
    door.do("kick", 0, 1)
    done = shut_then_open(door, "child", 0, 10)
    assert (done["result"], done["signal"]) == (0, 0)
    assert door.counted() == 11


def test_who_is_given_the_file(door: Door) -> None:
    door.do("map", 1)
    done = shut_then_open(door, "pass", 1, 10)
    assert (done["result"], done["signal"]) == (0, 0)
    assert door.counted() == 10


def test_a_child_with_a_client_of_its_own_cannot_use_its_parents_door(door: Door) -> None:
    door.do("kick", 0, 1)
    door.ask("kin", 0, 60_000)
    until(lambda: door.counted() > 1)
    (child,) = [pid for pid in children(door.pid) if until(lambda pid=pid: Gate(pid).stats())]
    gate = Gate(child)
    for _ in range(3):
        gate.hold()
        before = door.counted()
        time.sleep(0.1)
        assert door.counted() == before
        assert door.do("kick", 0, 1)["result"] == 1
        gate.release()
        until(lambda before=before: door.counted() > before + 1)
    os.kill(child, signal.SIGKILL)
    until(lambda: gone(child))
    # back to one address space: nobody else's gate costs it a fault
    assert not faults_for_another(door)


def test_a_door_whose_client_is_gone(door: Door) -> None:
    assert door.do("dup", 1)["result"] == 0
    assert door.do("free")["result"] == 0
    assert door.do("kick", 0, 10)["result"] == 10
    shut_then_open(door, "kick", 0, 1)


def test_how_far_a_channel_has_come(door: Door) -> None:
    stats = Gate(door.pid).stats()
    assert (stats["channels"], stats["told"], stats["pending"]) == (1, 1, 0)
    with Gate(door.pid):
        assert door.do("queue")["result"] == 0
        waiting = door.ask("ring", 0)
        assert door.waits(waiting)
        assert Gate(door.pid).stats()["pending"] == 1
    door.end(waiting)
    until(lambda: Gate(door.pid).stats()["pending"] == 0)


@pytest.mark.parametrize("verb", ["read", "write", "futex"])
def test_the_kernel_does_not_wait_for_a_system_call_on_the_page(door: Door, verb: str) -> None:
    """It may hold locks that others need; the call fails, and rings nothing."""
    with Gate(door.pid):
        before = door.counted()
        assert door.do(verb, 0)["result"] == -EFAULT
        assert door.counted() == before
    assert int(door.do(verb, 0)["result"]) >= 0  # type: ignore[call-overload]


@pytest.mark.parametrize(("verb", "error"), [("mem", EIO), ("poke", EIO), ("vm", EFAULT)])
def test_a_debugger_does_not_get_through(door: Door, verb: str, error: int) -> None:
    open_answer = door.do(verb, 0)["result"]
    assert open_answer == (-EFAULT if verb == "vm" else 4 if verb == "mem" else 0)
    with Gate(door.pid):
        assert door.do(verb, 0)["result"] == -error
    stats = Gate(door.pid).stats()
    assert (stats["accesses"], stats["denied"]) == ((0, 0) if verb == "vm" else (1, 1))


def test_other_threads_do_not_stand_still(door: Door) -> None:
    with Gate(door.pid):
        waiting = [door.ask("kick", 0, 1) for _ in range(4)]
        assert all(door.waits(number, 0.05) for number in waiting)
        calls = door.do("calls", 200)
        assert calls["result"] == 200
        assert calls["longest_ns"] < 400e6
        assert all(door.waits(number, 0) for number in waiting)


def test_handlers_of_signals_run_while_a_thread_waits(door: Door) -> None:
    with Gate(door.pid):
        waiting = door.ask("kick", 0, 1)
        assert door.waits(waiting)
        for number in range(1, 6):
            os.kill(door.pid, signal.SIGUSR1)
            until(lambda number=number: door.do("handled")["result"] == number)
        assert door.waits(waiting)
    assert door.end(waiting)["result"] == 1
    assert door.counted() == 1


def test_stopped_and_continued(door: Door) -> None:
    with Gate(door.pid):
        waiting = door.ask("kick", 0, 1)
        assert door.waits(waiting)
        os.kill(door.pid, signal.SIGSTOP)
        until(lambda: os.waitid(os.P_PID, door.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None)
        os.kill(door.pid, signal.SIGCONT)
        assert door.waits(waiting)
    assert door.end(waiting)["result"] == 1


@pytest.mark.parametrize("verb", ["kick", "child"])
def test_who_waits_can_be_killed(door: Door, verb: str) -> None:
    Gate(door.pid).hold()
    waiting = door.ask(verb, 0, 1)
    assert door.waits(waiting)
    door.process.kill()
    ended(door.process)  # nobody opens the gate
    until(lambda: gone(door.pid))


@pytest.mark.parametrize("verb", ["exec", "abort"])
def test_the_program_ends_or_is_replaced_while_threads_wait(door: Door, verb: str) -> None:
    Gate(door.pid).hold()
    waiting = [door.ask("kick", 0, 1) for _ in range(3)]
    assert all(door.waits(number, 0.05) for number in waiting)
    door.ask(verb)
    until(lambda: leak("waiting") == 0)
    if verb == "abort":
        assert ended(door.process) == -signal.SIGABRT


@pytest.fixture
def watched(door: Door) -> Iterator[Door]:
    """The gate is armed when the program was quiet for LINGER_MS: it has turns, and so has somebody else."""
    with Door() as other, genl.DetShare() as family:
        family.class_set("under", level=genl.DETSHARE_LEVEL_LOW, turn_us=100_000)
        for pid in (door.pid, other.pid):
            family.sched_set(pid, "under")
        yield door
        for pid in (door.pid, other.pid):
            family.sched_del(pid)
        family.class_del("under")


def test_an_armed_gate_sees_the_first_ring_of_a_burst(watched: Door) -> None:
    gate = Gate(watched.pid)
    watched.do("kick", 0, 10)
    until(lambda: gate.stats()["armed"])
    for _ in range(6):
        before = gate.stats()
        rests = watched.do("kick", 0, 1000, LINGER_MS)["rests"]
        after = gate.stats()
        # one, and another only where the host stopped the program for so long that the gate was armed again: between
        # two rings, or in one that was caught and had not rung yet
        caught = after["kicks"] - before["kicks"]
        assert 1 <= caught <= 1 + rests
        # a ring that comes while it is being armed costs a fault, and is none that comes first
        assert caught <= after["faults"] - before["faults"] <= caught + 1 + rests
        until(lambda: gate.stats()["armed"])
    assert watched.counted() == 6_010


def test_rings_that_go_on_are_seen_without_faults(watched: Door) -> None:
    gate = Gate(watched.pid)
    watched.do("kick", 0, 1)
    until(lambda: gate.stats()["armed"])
    watched.do("kick", 0, 1)
    before = gate.stats()
    done = watched.do("kick", 0, 300_000, LINGER_MS)
    after = gate.stats()
    assert after["last_ns"] > before["last_ns"] + done["ns"] / 2
    # none but for a busy host, which may stop the program for as long as the gate waits
    assert after["faults"] <= before["faults"] + 2 * (1 + done["rests"])
    until(lambda: gate.stats()["armed"])


def test_the_door_goes_with_its_file(door: Door) -> None:
    door.do("map", 1)
    assert Gate(door.pid).stats()["doors"] == 2
    door.process.kill()
    door.process.wait()
    until(lambda: gone(door.pid))
    assert (leak("doors"), leak("userd")) == (0, 0)


def test_a_file_that_is_swapped_for_another_is_not_remembered(door: Door) -> None:
    """One that is not the driver's would stay known for good: nobody tells of its end."""
    assert 0 < door.do("swap", 3000)["result"] < 3000
    door.process.kill()
    door.process.wait()
    until(lambda: gone(door.pid))
    assert (leak("doors"), leak("userd")) == (0, 0)


def test_a_claim_that_fails_while_the_file_is_handled(door: Door) -> None:
    """A file that shows something else is a door for as long as the driver needs to refuse the doorbell."""
    assert door.do("view", 1)["result"] == 0
    claims, handled = door.ask("claim", 1, CLAIMS_MS), door.ask("handle", 1, CLAIMS_MS)
    done = door.end(handled)
    assert (done["signal"], int(done["result"]) > 0) == (0, True), done
    assert door.end(claims)["result"] > 0
    assert Gate(door.pid).stats()["doors"] == 1
    # what the child had mapped is not counted any more: nobody else's gate costs a fault
    assert not faults_for_another(door)
    shut_then_open(door, "kick", 0, 1)
    door.process.kill()
    door.process.wait()
    until(lambda: gone(door.pid))
    assert (leak("doors"), leak("userd")) == (0, 0)


@pytest.mark.parametrize(("threads", "shut_us", "open_us"), [(6, 0, 0), (2, 300, 300)])
def test_many_threads_while_the_gate_flaps(threads: int, shut_us: int, open_us: int) -> None:
    """Rings that were counted while the gate was shut, and rings that were lost: none."""
    words = ["--rounds", "150", "--threads", str(threads), "--shut-us", str(shut_us), "--open-us", str(open_us)]
    done = run([CLIENTS / "nvflap", *words], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    figures = json.loads(done.stdout)
    assert (figures["slipped"], figures["lost"], figures["rounds"]) == (0, 0, 150)
    assert figures["kicks"] > 1000


@pytest.fixture
def loaded() -> Iterator[None]:
    yield
    if not Path("/sys/module/detshare").exists():
        subprocess.run(["insmod", MODULE], check=True)


@pytest.mark.usefixtures("loaded")
def test_the_module_goes_while_threads_wait(door: Door) -> None:
    door.do("page", 0, 8)
    assert door.do("protect", 0, 8, 1)["result"] == 0
    assert door.do("protect", 0, 12, 3)["result"] == 0
    Gate(door.pid).hold()
    waiting = [door.ask("kick", 0, 1) for _ in range(4)]
    assert all(door.waits(number, 0.05) for number in waiting)
    run(["rmmod", "detshare"], check=True)
    for number in waiting:
        done = door.end(number)
        assert (done["result"], done["signal"]) == (1, 0)
    assert door.counted() == 4
    # the driver alone would answer a touch of this piece with SIGBUS
    done = door.do("page", 0, 12)
    assert (done["result"], done["signal"]) == (1, 0)


@pytest.mark.usefixtures("loaded")
def test_doors_that_are_older_than_the_module() -> None:
    run(["rmmod", "detshare"], check=True)
    with Door() as door:
        door.do("kick", 0, 1)
        subprocess.run(["insmod", MODULE], check=True)
        # found with its next call that matters
        assert door.do("map", 1)["result"] == 0
        stats = Gate(door.pid).stats()
        assert (stats["doors"], stats["assumed"]) == (2, 1)
        shut_then_open(door, "kick", 0, 1)
        shut_then_open(door, "kick", 1, 1)
        assert door.counted() == 3
    until(lambda: gone(door.pid))
    assert (leak("doors"), leak("userd")) == (0, 0)
