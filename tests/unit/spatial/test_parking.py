# SPDX-License-Identifier: Apache-2.0
"""Parking as people see it, on the stand-in driver: daemon, detshare run, libdetshare.so, a CUDA program."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from park_machine import MIB, SPATIAL, Machine
from spatial_lane import end_mps

from detshare.ctl.core.errors import ClientError
from tests.patience import run, until
from tests.rest import after_first

pytestmark = pytest.mark.e2e


@pytest.fixture
def machine(folder: Path, control: Path) -> Iterator[Machine]:
    machine = Machine(folder, control)
    yield machine
    machine.close()
    end_mps(folder, control)


def test_park_and_resume(machine: Machine) -> None:
    program = machine.run(*SPATIAL)
    until(lambda: machine.parking(program.pid)["parkable_bytes"])
    before = int(program.do("left"))
    changed, skipped = machine.verb("park", program.pid)
    assert not skipped
    assert "40M left the GPU" in changed[0]["note"]
    assert "4K of what it allocated stay" in changed[0]["note"]
    assert int(program.do("left")) - before == 40 * MIB
    until(lambda: machine.seen(program.pid)["state"] == "parked")
    seen = machine.seen(program.pid)
    assert seen["parking"]["state"] == "parked"
    assert seen["parking"]["parked_bytes"] == 40 * MIB
    pool = machine.client.pool()
    assert [(each["pid"], each["state"]) for each in pool["parked"]] == [(program.pid, "parked")]
    changed, skipped = machine.verb("resume", program.pid)
    assert (len(changed), skipped) == (1, [])
    assert "came back" in changed[0]["note"]
    assert int(program.do("left")) == before
    until(lambda: machine.seen(program.pid)["state"] == "spatial")
    assert program.do("same") == "same"
    _changed, skipped = machine.verb("resume", program.pid)
    assert "not held" in skipped[0]["reason"]


def test_the_next_launch_brings_it_back(machine: Machine) -> None:
    program = machine.run(*SPATIAL)
    machine.verb("park", program.pid)
    until(lambda: machine.parking(program.pid)["state"] == "parked")
    assert program.do("launch") == "launched"
    until(lambda: machine.parking(program.pid)["state"] == "home")
    assert program.do("same") == "same"
    parking = machine.parking(program.pid)
    assert (parking["parks"], parking["wakes"]) == (1, 1)
    until(lambda: len(machine.told(program.pid)) == 2)
    parked, back = machine.told(program.pid)
    assert parked.startswith("parked: 40M left GPU-")
    assert "again, after" in back


def test_a_paused_program_stays_away(machine: Machine) -> None:
    program = machine.run(*SPATIAL)
    machine.verb("park", program.pid)
    machine.verb("pause", program.pid)
    program.ask("launch")
    until(lambda: machine.seen(program.pid)["state"] == "paused")
    assert machine.parking(program.pid)["state"] == "parked"
    changed, skipped = machine.verb("resume", program.pid)
    assert (len(changed), skipped) == (1, [])
    assert program.answer() == "launched"
    assert program.do("same") == "same"


def test_idle_programs_are_parked_by_themselves(machine: Machine) -> None:
    program = machine.run("--lane", "spatial", "--park-after", "300ms")
    for parks in (1, 2):
        until(lambda: machine.parking(program.pid)["parks"] == parks)  # noqa: B023
        assert program.do("launch") == "launched"
    assert program.do("same") == "same"


def test_in_the_temporal_lane_too(machine: Machine) -> None:
    program = machine.run("--lane", "temporal", "--park")
    changed, skipped = machine.verb("park", program.pid)
    assert not skipped
    assert "40M left the GPU" in changed[0]["note"]
    changed, _skipped = machine.verb("resume", program.pid)
    assert "came back" in changed[0]["note"]
    machine.verb("park", program.pid)
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


def test_who_was_not_started_for_it(machine: Machine) -> None:
    program = machine.run("--lane", "spatial")
    changed, skipped = machine.verb("park", program.pid)
    assert not changed
    assert "detshare run --park" in skipped[0]["reason"]
    assert program.do("same") == "same"
    _changed, skipped = machine.verb("park", 4194301)
    assert "no process" in skipped[0]["reason"]
    _changed, skipped = machine.verb("park", "no-such-program")
    assert skipped[0]["reason"].startswith("nobody that this selects can be parked")


def test_a_full_arena_refuses_and_loses_nothing(folder: Path, control: Path) -> None:
    machine = Machine(folder, control, arena=64)
    try:
        first, second = machine.run(*SPATIAL), machine.run(*SPATIAL)
        assert machine.verb("park", first.pid)[0]
        changed, skipped = machine.verb("park", second.pid)
        assert not changed
        assert "the arena of 64M has 24M left, and 40M are needed" in skipped[0]["reason"]
        assert "park.arena" in skipped[0]["reason"]
        told = [event["text"] for event in machine.client.events() if event["pid"] == second.pid]
        assert any(text.startswith("is not parked: ") for text in told)
        assert second.do("launch") == "launched"
        assert (first.do("same"), second.do("same")) == ("same", "same")
        # who ends gives its part back
        first.process.kill()
        first.process.communicate()
        until(lambda: machine.verb("park", second.pid)[0])
        assert second.do("same") == "same"
    finally:
        machine.close()
        end_mps(folder, control)


def test_a_full_gpu_lets_it_wait(machine: Machine) -> None:
    program = machine.run(*SPATIAL)
    machine.verb("park", program.pid)
    (machine.folder / "taken").write_text(str(80 << 30), encoding="utf-8")
    program.ask("launch")
    until(lambda: machine.parking(program.pid)["state"] == "waiting")
    (machine.folder / "taken").unlink()
    assert program.answer() == "launched"
    assert program.do("same") == "same"


@pytest.mark.parametrize("seed", after_first(range(2)))
def test_a_daemon_that_is_killed_at_any_point_loses_nothing(machine: Machine, seed: int) -> None:
    dice = random.Random(seed)
    program = machine.run(*SPATIAL)
    for _ in range(4):
        asking = threading.Thread(target=_park, args=(machine, program.pid))
        asking.start()
        time.sleep(dice.random() * 0.08)
        machine.kill()
        asking.join()
        if dice.random() < 0.5:
            assert program.do("launch") == "launched"
        machine.start()
        until(lambda: machine.seen(program.pid))
        assert program.do("same") == "same"
    assert machine.verb("park", program.pid)[0]
    machine.kill()
    machine.start()
    until(lambda: machine.parking(program.pid)["state"] == "parked")
    assert machine.parking(program.pid)["arena_bytes"] == 40 * MIB
    assert machine.verb("resume", program.pid)[0]
    assert program.do("same") == "same"


def _park(machine: Machine, pid: int) -> None:
    try:
        machine.verb("park", pid)
    except ClientError:
        return  # the daemon is killed under it


def test_a_program_that_is_killed_at_any_point_leaves_nothing(machine: Machine) -> None:
    dice = random.Random(1)
    other = machine.run(*SPATIAL)
    machine.verb("park", other.pid)
    for _ in range(4):
        program = machine.run(*SPATIAL, size=100)
        asking = threading.Thread(target=_park, args=(machine, program.pid))
        asking.start()
        time.sleep(dice.random() * 0.1)
        program.process.kill()
        program.process.communicate()
        asking.join()
        until(lambda: not machine.seen(program.pid))  # noqa: B023
    # 216 of 256 MiB are free again: none of the four has any
    last = machine.run(*SPATIAL, size=216)
    assert machine.verb("park", last.pid)[0]
    assert (last.do("same"), other.do("same")) == ("same", "same")


def test_the_command_says_what_became_of_it(machine: Machine) -> None:
    program = machine.run(*SPATIAL)
    command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(machine.folder)]
    done = run(
        [*command, "park", str(program.pid)], capture_output=True, text=True, env=machine.environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "parked" in done.stdout
    until(lambda: machine.seen(program.pid)["state"] == "parked")
    shown = run(
        [*command, "show", str(program.pid)], capture_output=True, text=True, env=machine.environment, check=True
    )
    assert "parked; its next launch brings it back" in shown.stdout
    assert "can be parked" in shown.stdout
