# SPDX-License-Identifier: Apache-2.0
"""Copies that a program keeps in host memory after its way back, as people see them, on the stand-in driver."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from park_machine import MIB, SPATIAL, Machine, Program
from spatial_lane import end_mps

from detshare.ctl.core.errors import ClientError
from detshare.runtime import board_layout as layout
from detshare.runtime.board import Counters
from detshare.runtime.rck import map_board
from tests.patience import run, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def machine(folder: Path, control: Path) -> Iterator[Machine]:
    machine = Machine(folder, control, arena=64)
    yield machine
    machine.close()
    end_mps(folder, control)


def back(machine: Machine, program: Program) -> None:
    """Parked, and on the GPU again."""
    assert machine.verb("park", program.pid)[0]
    assert machine.verb("resume", program.pid)[0]
    until(lambda: machine.parking(program.pid)["state"] == "home")


def test_the_second_park_copies_what_changed(machine: Machine) -> None:
    program = machine.run(*SPATIAL)
    back(machine, program)
    until(lambda: machine.parking(program.pid)["kept_bytes"] == 40 * MIB)
    assert machine.parking(program.pid)["copied_bytes"] == 40 * MIB
    assert machine.client.pool()["kept"] == [{"pid": program.pid, "bytes": 40 * MIB}]
    command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(machine.folder)]
    shown = run(
        [*command, "show", str(program.pid)], capture_output=True, text=True, env=machine.environment, check=True
    ).stdout
    assert re.search(r"copies kept +40\.0M, until another program", shown), shown
    listed = run([*command, "pool"], capture_output=True, text=True, env=machine.environment, check=True).stdout
    assert f"PID {program.pid}: 40.0M of host memory hold copies" in listed
    assert program.do("launch") == "launched"
    changed, skipped = machine.verb("park", program.pid)
    assert not skipped
    # the one that was written, and one by which the digests are checked
    copied = machine.parking(program.pid)["copied_bytes"]
    assert copied in (2 * MIB, 4 * MIB)
    assert "40M left the GPU in" in changed[0]["note"]
    assert f"{copied // MIB}M of it copied" in changed[0]["note"]
    assert program.do("same") == "same"


def test_copies_make_room_for_who_has_to_be_parked(machine: Machine) -> None:
    first, second = machine.run(*SPATIAL), machine.run(*SPATIAL)
    for one, other in ((first, second), (second, first), (first, second)):
        back(machine, one)
        assert machine.parking(one.pid)["arena_bytes"] == 40 * MIB
        assert machine.verb("park", other.pid)[0]
        until(lambda: machine.parking(one.pid)["arena_bytes"] == 0)  # noqa: B023
        # and who is parked gives nothing
        changed, skipped = machine.verb("park", one.pid)
        assert not changed
        assert "the arena of 64M has 24M left, and 40M are needed" in skipped[0]["reason"]
        assert (one.do("same"), other.do("launch"), other.do("same")) == ("same", "launched", "same")


@pytest.mark.rest
def test_nobody_loses_copies_where_that_would_not_be_enough(machine: Machine) -> None:
    small, large = machine.run(*SPATIAL, size=8), machine.run(*SPATIAL, size=72)
    back(machine, small)
    assert not machine.verb("park", large.pid)[0]
    assert machine.parking(small.pid)["kept_bytes"] == 8 * MIB
    assert (small.do("same"), large.do("same")) == ("same", "same")


def test_the_off_switch(folder: Path, control: Path) -> None:
    machine = Machine(folder, control, incremental=False)
    try:
        program = machine.run(*SPATIAL)
        for _ in range(2):
            back(machine, program)
            parking = machine.parking(program.pid)
            assert (parking["kept_bytes"], parking["copied_bytes"]) == (0, 40 * MIB)
            assert parking["whole"] == "park.incremental is off"
        assert program.do("same") == "same"
    finally:
        machine.close()
        end_mps(folder, control)


@pytest.mark.parametrize("who", ["program", "daemon"])
def test_a_kill_between_digests_and_copies(folder: Path, control: Path, who: str) -> None:
    """The kernel that finds what changed takes 0.7 s here; the kill comes in the middle of it."""
    machine = Machine(folder, control, arena=64, FAKECUDA_KERNEL_US="detshare_hash:700000")
    try:
        program = machine.run(*SPATIAL)
        back(machine, program)
        assert program.do("launch") == "launched"
        asking = threading.Thread(target=_park, args=(machine, program.pid))
        asking.start()
        [board] = (folder / "boards").glob("*.counters")
        counters = Counters(map_board(board))  # the daemon answers nobody while it waits for the park
        until(lambda: counters.get("park_state") == layout.PARK_LEAVING)
        time.sleep(0.1)
        if who == "daemon":
            machine.kill()
            asking.join()
            machine.start()
            until(lambda: machine.parking(program.pid)["state"] == "parked")
            assert machine.parking(program.pid)["copied_bytes"] <= 4 * MIB
        else:
            program.process.kill()
            program.process.communicate()
            asking.join()
            program = machine.run(*SPATIAL, size=64)  # all of the arena is free again
            until(lambda: machine.verb("park", program.pid)[0])
        assert program.do("launch") == "launched"
        assert program.do("same") == "same"
    finally:
        machine.close()
        end_mps(folder, control)


def _park(machine: Machine, pid: int) -> None:
    try:
        machine.verb("park", pid)
    except ClientError:
        return  # the daemon is killed under it
