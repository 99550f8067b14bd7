# SPDX-License-Identifier: Apache-2.0
"""The driver way of park: real processes, the real child process, a stand-in for the driver's calls."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from checkpoint_machine import GIB, GPUS, Machine, children, machine_in
from spatial_lane import Lane

from detshare.ctl.checkpoint import calls
from detshare.ctl.checkpoint.ask import ask
from detshare.ctl.checkpoint.child import moved_mark
from detshare.ctl.cli.details import parking_rows
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.snapshot import State
from detshare.ctl.core.verbs import request
from tests.patience import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def machine(folder: Path, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    yield from machine_in(folder, lane, monkeypatch)


def test_it_goes_and_comes_back_and_everybody_knows(machine: Machine) -> None:
    pid = machine.run(busy=True)
    outcome = machine.do("park", pid)  # its work goes on: whoever asks does not wait for that
    assert machine.where(pid) == "leaving"
    machine.behave(pid, busy=False)
    (change,) = outcome.changed
    assert "by the driver's checkpoint, for it is not under libdetshare.so" in change.note
    assert f"detshare-ctl resume {pid}" in change.note
    assert machine.where(pid) in ("leaving", "parked")
    until(lambda: machine.where(pid) == "parked")
    program = machine.seen(pid)
    assert program is not None  # no look of the driver finds it any more
    assert (program.state, program.command, program.gpus) == (State.PARKED, "python train.py", (GPUS[0].uuid,))
    assert program.parking is not None
    assert (program.parking.way, program.parking.parked_bytes, program.parking.parks) == ("driver", 8 * GIB, 1)
    until(lambda: machine.hears(f"parked by the driver's checkpoint: 8G left {GPUS[0].uuid} in "))
    (change,) = machine.do("resume", pid).changed
    assert "by the driver's restore" in change.note
    until(lambda: machine.where(pid) == "home")
    assert machine.state(pid) == 0
    assert machine.calls() == ["lock", "checkpoint", "restore", "unlock"]
    until(lambda: machine.hears("runs again, after "))
    assert not (machine.folder / "checkpoints.json").exists()
    again = machine.do("resume", pid)
    assert not again.changed
    assert "not paused" in again.skipped[0].reason


def test_work_that_does_not_end_stops_it_and_nothing_is_lost(machine: Machine) -> None:
    pid = machine.run(busy=True)
    assert machine.do("park", pid, timeout=0.05).changed
    until(lambda: machine.hears("its work did not end within 0.05 s"))
    assert machine.state(pid) == 0
    assert machine.where(pid) == "home"
    assert "checkpoint" not in machine.calls()
    machine.behave(pid, busy=False)
    assert machine.do("park", pid).changed
    until(lambda: machine.where(pid) == "parked")


def test_who_was_locked_is_let_go_when_the_driver_refuses(machine: Machine) -> None:
    pid = machine.run(refuse=True)
    machine.do("park", pid)
    until(lambda: machine.hears("is not parked, nothing is lost: the driver cannot checkpoint what it uses"))
    assert machine.state(pid) == 0
    assert machine.calls() == ["lock", "checkpoint", "unlock"]


def test_a_child_that_is_killed_leaves_nobody_locked(machine: Machine) -> None:
    pid = machine.run(seconds=600)
    machine.do("park", pid)
    until(lambda: machine.state(pid) == 1)
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    until(lambda: machine.hears("is not parked, nothing is lost"))
    assert machine.state(pid) == 0
    assert machine.where(pid) == "home"


def test_without_room_it_stays_where_it_is(machine: Machine) -> None:
    pid = machine.run(full=True)
    machine.do("park", pid)
    until(lambda: machine.where(pid) == "parked")
    machine.do("resume", pid)
    until(lambda: machine.hears("stays in the driver's checkpoint, nothing is lost: the GPU has no room for it"))
    assert machine.where(pid) == "parked"
    machine.behave(pid, full=False)
    machine.do("resume", pid)
    until(lambda: machine.where(pid) == "home")


def test_another_daemon_finds_it_and_brings_it_back(machine: Machine) -> None:
    pid = machine.run()
    machine.do("park", pid)
    until(lambda: machine.where(pid) == "parked")
    machine.checkpoints.close(restore=False)  # killed
    machine.start()
    until(lambda: machine.hears("found again: it is still in the driver's checkpoint"))
    assert machine.where(pid) == "parked"
    assert machine.do("resume", pid).changed
    until(lambda: machine.where(pid) == "home")


@pytest.mark.parametrize("left", [0, 1, 2])
def test_another_daemon_asks_the_driver_how_it_stands(machine: Machine, left: int) -> None:
    """Killed before, in, and after the checkpoint: the journal says the same of all three."""
    pid = machine.run()
    process = machine.programs[0].id
    entry = {"id": list(process), "command": "x", "user": "", "container": "", "gpus": [GPUS[0].uuid], "klass": None}
    machine.behave(pid, state=left)
    machine.checkpoints.close(restore=False)
    journal = [entry | {"size": GIB, "state": "leaving"}]
    (machine.folder / "checkpoints.json").write_text(json.dumps(journal))
    machine.start()
    until(lambda: machine.hears("found again"))
    assert machine.where(pid) == ("parked" if left == 2 else "home")
    assert machine.state(pid) == (2 if left == 2 else 0)


def test_of_who_ended_while_there_was_no_daemon_nothing_is_left(machine: Machine) -> None:
    pid = machine.run()
    process = machine.programs[0].id
    entry = {"id": list(process), "command": "x", "user": "", "container": "", "gpus": [GPUS[0].uuid], "klass": None}
    mark = moved_mark(machine.folder / "checkpoints.lock", *process)
    machine.checkpoints.close(restore=False)
    (machine.folder / "checkpoints.json").write_text(json.dumps([entry | {"size": GIB, "state": "leaving"}]))
    mark.touch()
    machine._processes[0].kill()
    machine._processes[0].wait()
    machine.start()
    assert not mark.exists()
    assert machine.where(pid) == ""


def test_a_lost_journal_is_no_loss(machine: Machine) -> None:
    pid = machine.run()
    machine.behave(pid, state=2)
    machine.programs.clear()
    machine.lanes.look()
    (change,) = machine.do("resume", pid).changed
    assert "the driver is asked" in change.note
    until(lambda: machine.hears("runs again"))
    assert machine.state(pid) == 0


def test_a_daemon_that_ends_brings_everybody_back(machine: Machine) -> None:
    first, second = machine.run(), machine.run()
    for pid in (first, second):
        machine.do("park", pid)
    until(lambda: machine.where(second) == "parked")
    machine.checkpoints.close()
    assert (machine.state(first), machine.state(second)) == (0, 0)


def test_who_ends_is_forgotten(machine: Machine) -> None:
    pid = machine.run()
    machine.do("park", pid)
    until(lambda: machine.where(pid) == "parked")
    machine._processes[0].kill()
    machine._processes[0].wait()
    assert machine.seen(pid) is None
    assert not (machine.folder / "checkpoints.json").exists()
    assert machine.hears("it ended while")


def test_who_is_locked_by_another_tool_is_left_alone(machine: Machine) -> None:
    pid = machine.run()
    machine.behave(pid, state=1)
    machine.do("park", pid)
    until(lambda: machine.hears("the driver says that it is locked, by another tool"))
    assert machine.state(pid) == 1


@pytest.mark.parametrize(
    ("state", "words"),
    [(State.MPS_CLIENT, "MPS"), (State.PAUSED, "resume it first"), (State.NO_CONTEXT, "no GPU context")],
)
def test_who_cannot_be_parked_so(machine: Machine, state: State, words: str) -> None:
    pid = machine.run(state)
    (skip,) = machine.do("park", pid).skipped
    assert words in skip.reason


def test_it_moves_to_another_gpu_and_back(machine: Machine) -> None:
    pid = machine.run()
    for gpu, named in ((GPUS[1], "1"), (GPUS[0], GPUS[0].uuid[:8])):
        (change,) = machine.do("migrate", pid, gpu=named).changed
        assert f"by the driver's checkpoint, to GPU {gpu.minor}: under way" in change.note
        until(lambda: machine.hears(f"to {gpu.uuid} by the driver's checkpoint in "))  # noqa: B023
        assert (machine.gpu(pid), machine.state(pid), machine.where(pid)) == (gpu.uuid, 0, "home")
        machine.programs[0] = replace(machine.programs[0], gpus=(gpu.uuid,))  # as a look finds it now
        machine.lanes.look()
    assert machine.calls() == 2 * ["lock", "checkpoint", "restore", "unlock"]
    assert not (machine.folder / "checkpoints.json").exists()


def test_whom_the_other_gpu_has_no_room_for_runs_on_where_it_was(machine: Machine) -> None:
    pid = machine.run(full=GPUS[1].uuid)
    machine.do("migrate", pid, gpu="1")
    words = "is not moved, it stays where it was, and runs; nothing is lost: the GPU has no room for it"
    until(lambda: machine.hears(words))
    assert (machine.gpu(pid), machine.state(pid), machine.where(pid)) == (GPUS[0].uuid, 0, "home")
    assert machine.calls() == ["lock", "checkpoint", "restore", "restore", "unlock"]


def test_who_is_parked_comes_back_on_the_other_gpu_or_stays_parked(machine: Machine) -> None:
    pid = machine.run(full=GPUS[1].uuid)
    machine.do("park", pid)
    until(lambda: machine.where(pid) == "parked")
    assert machine.do("migrate", pid, gpu="1").changed
    until(lambda: machine.hears("it stays in the driver's checkpoint; nothing is lost: the GPU has no room for it"))
    assert machine.where(pid) == "parked"
    machine.behave(pid, full=False)
    machine.do("migrate", pid, gpu="1")
    until(lambda: machine.where(pid) == "home")
    assert (machine.gpu(pid), machine.state(pid)) == (GPUS[1].uuid, 0)


def test_who_was_killed_in_a_move_is_found_by_the_next_daemon(machine: Machine) -> None:
    pid = machine.run(seconds=0.3)
    machine.do("migrate", pid, gpu="1")
    until(lambda: machine.state(pid) == 2)
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    until(lambda: machine.hears("it stays in the driver's checkpoint; nothing is lost"))
    machine.checkpoints.close(restore=False)
    machine.start()
    until(lambda: machine.hears("found again: it is still in the driver's checkpoint"))
    machine.do("resume", pid)
    until(lambda: machine.where(pid) == "home")
    assert (machine.gpu(pid), machine.state(pid)) == (GPUS[0].uuid, 0)


@pytest.mark.parametrize(
    ("gpu", "words"), [("0", "on GPU 0 already"), ("2", "the driver restores onto the same chip only")]
)
def test_who_cannot_move_there(machine: Machine, gpu: str, words: str) -> None:
    pid = machine.run()
    (skip,) = machine.do("migrate", pid, gpu=gpu).skipped
    assert words in skip.reason


def test_who_was_parked_by_its_library_moves_and_is_not_the_drivers(machine: Machine) -> None:
    pid = machine.run(state=State.PARKED)
    machine.behave(pid, state=1)
    machine.do("migrate", pid, gpu="1")
    words = "it stays where it was, and runs; nothing is lost: the driver says that it is locked, by another"
    until(lambda: machine.hears(words))
    assert not (machine.folder / "checkpoints.json").exists()
    machine.behave(pid, state=0)
    machine.do("migrate", pid, gpu="1")
    until(lambda: machine.hears(f"to {GPUS[1].uuid} by the driver's checkpoint in "))
    assert machine.gpu(pid) == GPUS[1].uuid


@pytest.mark.parametrize(
    "places",
    [{0: 1}, {0: 2, 1: 1, 2: 0}, {0: 1, 1: 1, 2: 2}, {0: 9, 1: 1, 2: 2}, {1: 0, 2: 2}],
    ids=["not every GPU", "another chip", "two to one place", "one that is not there", "not its own"],
)
def test_pairs_that_the_driver_does_not_take_leave_it_where_it_was(machine: Machine, places: dict[int, int]) -> None:
    pid = machine.run()
    names = {gpu.minor: gpu.uuid for gpu in GPUS} | {9: GPUS[0].uuid.replace("GPU-0", "GPU-9")}
    pairs = [f"{names[old]}={names[new]}" for old, new in places.items()]
    answer = ask("migrate", machine.folder / "lock", machine.programs[0].id, lock_ms=1000, pairs=pairs)
    assert "the driver takes no such pairs of GPUs" in answer.error
    assert (machine.gpu(pid), machine.state(pid)) == (GPUS[0].uuid, 0)
    assert machine.calls() == ["lock", "checkpoint", "restore", "restore", "unlock"]


def test_who_does_not_see_all_gpus_runs_on_where_it_was(machine: Machine) -> None:
    pid = machine.run(sees=[GPUS[0].uuid])
    machine.do("migrate", pid, gpu="1")
    until(lambda: machine.hears("it stays where it was, and runs; nothing is lost: the driver takes no such pairs"))
    assert (machine.gpu(pid), machine.state(pid), machine.where(pid)) == (GPUS[0].uuid, 0, "home")


@pytest.mark.parametrize("gpu", ["7", "7" * 5000, "GPU-", "", "x"], ids=("seven", "long", "prefix", "none", "x"))
def test_a_gpu_that_is_not_one(machine: Machine, gpu: str) -> None:
    pid = machine.run()
    with pytest.raises(BadRequest, match=r"migrate takes one GPU, .* there are: 0 \(GPU-0b2"):
        machine.do("migrate", pid, gpu=gpu)
    (skip,) = machine.do("migrate", 1, gpu="1").skipped
    assert "no GPU program is selected" in skip.reason


def test_a_job_is_not_moved_to_one_gpu(machine: Machine) -> None:
    pid = machine.run()
    with pytest.raises(BadRequest, match=f"job:{pid} is a job, .* by its PID"):
        machine.lanes.do(request("migrate", f"job:{pid}", gpu="1"))
    assert (machine.gpu(pid), machine.state(pid), machine.where(pid)) == (GPUS[0].uuid, 0, "")


def test_without_the_extra_it_says_what_to_install(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = machine.run()
    monkeypatch.setattr(calls, "MODULE", "cuda.bindings.not_there")
    (skip,) = machine.do("park", pid).skipped
    assert "pip install 'detshare[checkpoint]'" in skip.reason
    assert [check.ok for check in machine.checkpoints.doctor()] == [None]


def test_an_old_driver_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = machine.run()
    monkeypatch.setenv("STANDIN_CHECKPOINTS_LACKS", "cuCheckpointProcessGetState")
    machine.do("park", pid)
    until(lambda: machine.hears("it takes 570 or newer"))


def test_nothing_is_asked_where_it_cannot_be_kept(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = machine.run()
    monkeypatch.setattr(machine.checkpoints, "_save", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        machine.do("park", pid)
    assert not (machine.driver / "calls").exists()
    assert machine.where(pid) == ""


def test_who_is_parked_is_not_forgotten_where_a_move_cannot_be_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = machine.run()
    machine.do("park", pid)
    until(lambda: machine.where(pid) == "parked")
    with monkeypatch.context() as now:
        now.setattr(machine.checkpoints, "_save", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            machine.do("migrate", pid, gpu="1")
    assert machine.where(pid) == "parked"
    assert machine.do("resume", pid).changed
    until(lambda: machine.where(pid) == "home")


def test_the_page_and_show_tell_the_way(machine: Machine) -> None:
    pid = machine.run()
    machine.do("park", pid)
    until(lambda: machine.where(pid) == "parked")
    program = machine.seen(pid)
    assert program is not None
    rows = dict(parking_rows(program.to_json()))
    assert rows["gpu memory is"] == f"in its own host memory, by the driver's checkpoint; it waits for: resume {pid}"
    assert "1 time by the driver" in rows["was parked"]
