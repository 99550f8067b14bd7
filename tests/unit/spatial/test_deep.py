# SPDX-License-Identifier: Apache-2.0
"""`park --deep`: daemon, detshare run, libdetshare.so and a CUDA program, on a stand-in driver with checkpoints."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from park_machine import MIB, SPATIAL, Machine, Program
from spatial_lane import end_mps

from detshare.ctl.core.errors import ClientError
from tests.patience import until, words
from tests.rest import after_first

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
TEMPORAL = ("--lane", "temporal", "--park")
CONTEXT_MIB = 300
CONTEXT = (CONTEXT_MIB << 20) + 4096
"""with what is too small to be parked"""
MEMORY_MIB = 2048


class DeepMachine(Machine):
    """One GPU for all programs, whose contexts take memory too."""

    daemon_is = (str(HERE / "checkpointing_daemon.py"),)

    def refuse(self, on: bool) -> None:
        path = self.folder / "refuse"
        path.touch() if on else path.unlink()

    def used(self, other: Program) -> int:
        """Bytes of the GPU that all have but this one, which has its context and 2 MiB."""
        return (MEMORY_MIB << 20) - int(other.do("left")) - CONTEXT - 2 * MIB


@pytest.fixture
def machine(folder: Path, control: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeepMachine]:
    bindings = HERE / "standin_libcuda"
    path = os.pathsep.join(filter(None, (str(bindings), os.environ.get("PYTHONPATH", ""))))
    machine = DeepMachine(
        folder,
        control,
        PYTHONPATH=path,
        FAKECUDA_CHECKPOINTS="1",
        FAKECUDA_CHECKPOINT_REFUSE=str(folder / "refuse"),
        FAKECUDA_CONTEXT=str(CONTEXT_MIB),
        FAKECUDA_MEMORY=str(MEMORY_MIB << 20),
        FAKECUDA_SHARED=str(folder / "memory"),
    )
    yield machine
    machine.close()
    end_mps(folder, control)


def park(machine: DeepMachine, pid: int) -> str:
    changed, skipped = machine.verb("park", pid, deep=True)
    assert not skipped, skipped
    return str(changed[0]["note"])


def test_nothing_is_left_on_the_gpu_and_the_next_call_brings_it_back(machine: DeepMachine) -> None:
    other, program = machine.run(*TEMPORAL, size=2), machine.run(*TEMPORAL)
    assert machine.used(other) == CONTEXT + 40 * MIB
    note = park(machine, program.pid)
    assert "40M left the GPU" in note
    assert "its context left by the driver's checkpoint in" in note
    assert machine.used(other) == 0
    seen = machine.seen(program.pid)
    assert seen["state"] == "parked"
    assert (seen["parking"]["way"], seen["parking"]["parked_bytes"]) == ("deep", 40 * MIB)
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"
    assert machine.used(other) == CONTEXT + 40 * MIB
    until(lambda: any("its context is on the GPU again" in text for text in machine.told(program.pid)))


def test_resume_brings_all_of_it_back(machine: DeepMachine) -> None:
    other, program = machine.run(*TEMPORAL, size=2), machine.run(*TEMPORAL)
    for _ in range(3):
        park(machine, program.pid)
        assert machine.used(other) == 0
        changed, _skipped = machine.verb("resume", program.pid)
        assert "its memory came back in" in changed[0]["note"]
        assert machine.used(other) == CONTEXT + 40 * MIB
        assert program.do("same") == "same"


@pytest.mark.parametrize("call", ["left", "query", "graph", "same", "launch"])
def test_any_call_of_the_driver_wakes_it(machine: DeepMachine, call: str) -> None:
    program = machine.run(*TEMPORAL)
    park(machine, program.pid)
    assert program.do(call)
    assert program.do("same") == "same"


def test_where_the_driver_refuses_it_is_parked_as_without(machine: DeepMachine) -> None:
    other, program = machine.run(*TEMPORAL, size=2), machine.run(*TEMPORAL)
    machine.refuse(True)
    note = park(machine, program.pid)
    assert "40M left the GPU" in note
    assert "its context stays on the GPU: the driver cannot checkpoint what it uses" in note
    assert machine.used(other) == CONTEXT
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"
    park(machine, program.pid)
    machine.refuse(False)
    assert "its context left" in park(machine, program.pid)
    assert program.do("same") == "same"


@pytest.mark.rest
def test_without_room_it_stays_away_as_a_whole_and_comes_when_there_is(machine: DeepMachine) -> None:
    program = machine.run(*TEMPORAL)
    park(machine, program.pid)
    taken = machine.folder / "taken"
    taken.write_text(str(MEMORY_MIB << 20), encoding="utf-8")
    changed, skipped = machine.verb("resume", program.pid)
    assert not changed
    assert "it stays parked, its context too, and nothing is lost: the GPU has no room for it" in skipped[0]["reason"]
    program.ask("launch")
    time.sleep(0.2)
    assert machine.seen(program.pid)["parking"]["way"] == "deep"
    taken.unlink()
    assert program.answer() == "launched"
    assert program.do("same") == "same"


def test_in_the_spatial_lane_its_context_stays(machine: DeepMachine) -> None:
    program = machine.run(*SPATIAL)
    note = park(machine, program.pid)
    assert "40M left the GPU" in note
    assert "its context stays on the GPU: it is in the spatial lane" in note
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


def test_with_memory_that_the_checkpoint_would_lose_its_context_stays(machine: DeepMachine) -> None:
    program = machine.run(*TEMPORAL)
    machine.verb("park", program.pid)
    machine.verb("resume", program.pid, lazy=True)
    note = park(machine, program.pid)
    assert "40M left the GPU" in note
    assert "its context stays on the GPU: it has host memory that the GPU maps (park.lazy)" in note
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


@pytest.mark.rest
def test_of_who_shares_memory_the_context_stays(machine: DeepMachine) -> None:
    """The driver does not refuse it (park-deep), and what the other one sees afterwards is not known."""
    program = machine.run(*TEMPORAL)
    assert program.do("name") == "named"
    note = park(machine, program.pid)
    assert "40M left the GPU" in note
    assert "its context stays on the GPU: another process may have memory of it" in note
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


@pytest.mark.parametrize("seed", after_first(range(3)))
def test_a_daemon_that_is_killed_at_any_point_loses_nothing(machine: DeepMachine, seed: int) -> None:
    dice = random.Random(seed)
    program = machine.run(*TEMPORAL)
    for _ in range(3):
        asking = threading.Thread(target=_park, args=(machine, program.pid))
        asking.start()
        time.sleep(dice.random() * 0.6)
        machine.kill()
        asking.join()
        early = dice.random() < 0.5
        if early:
            program.ask("launch")
            time.sleep(dice.random() * 0.3)
        machine.start()
        if not early:
            program.ask("launch")
        assert program.answer() == "launched"
        assert program.do("same") == "same"
    park(machine, program.pid)
    machine.kill()
    machine.start()
    until(lambda: machine.seen(program.pid).get("parking", {}).get("way") == "deep")
    assert machine.verb("resume", program.pid)[0]
    assert program.do("same") == "same"


def test_without_a_daemon_a_call_waits_only_for_a_driver_that_is_checkpointed(machine: DeepMachine) -> None:
    program = machine.run(*TEMPORAL)
    park(machine, program.pid)
    machine.kill()
    program.ask("launch")
    time.sleep(3)  # longer than the lease
    machine.start()
    assert program.answer() == "launched"
    assert program.do("same") == "same"


def test_a_daemon_that_ends_brings_its_context_back(machine: DeepMachine) -> None:
    other, program = machine.run(*TEMPORAL, size=2), machine.run(*TEMPORAL)
    park(machine, program.pid)
    machine.daemon.send_signal(signal.SIGTERM)
    machine.daemon.wait()
    assert machine.used(other) == CONTEXT
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


@pytest.mark.rest
def test_a_program_that_is_killed_at_any_point_leaves_nothing(machine: DeepMachine) -> None:
    dice = random.Random(1)
    other = machine.run(*TEMPORAL, size=2)
    for _ in range(4):
        program = machine.run(*TEMPORAL, size=100)
        asking = threading.Thread(target=_park, args=(machine, program.pid))
        asking.start()
        time.sleep(dice.random() * 0.6)
        program.process.kill()
        program.process.communicate()
        asking.join()
        until(lambda: not machine.seen(program.pid))  # noqa: B023
    assert machine.used(other) == 0
    assert not (machine.folder / "checkpoints.json").exists()


def test_a_program_that_ends_while_it_is_away_ends(machine: DeepMachine) -> None:
    program = machine.run(*TEMPORAL)
    park(machine, program.pid)
    words(program.process)
    assert program.process.returncode == 0


def _park(machine: DeepMachine, pid: int) -> None:
    try:
        machine.verb("park", pid, deep=True)
    except ClientError:
        return  # the daemon is killed under it
