# SPDX-License-Identifier: Apache-2.0
"""Lazy ways back as people see them, on the stand-in driver: daemon, detshare run, libdetshare.so, a CUDA program."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from park_machine import MIB, SPATIAL, Machine, Program
from spatial_lane import end_mps

from tests.patience import until
from tests.rest import after_first

pytestmark = pytest.mark.e2e

MEMORY = 80 << 30


class LazyMachine(Machine):
    """With park.lazy in its configuration."""

    def start(self) -> None:
        text = self.config.read_text(encoding="utf-8")
        if "lazy" not in text and self.lazy:
            self.config.write_text(text + "lazy = true\n", encoding="utf-8")
        super().start()

    lazy = True

    def taken(self, size: int) -> None:
        """So much of the GPU is others'; nobody sees the file empty."""
        draft = self.folder / "taken.new"
        draft.write_text(str(size), encoding="utf-8")
        draft.replace(self.folder / "taken")


@pytest.fixture
def machine(folder: Path, control: Path) -> Iterator[LazyMachine]:
    machine = LazyMachine(folder, control)
    yield machine
    machine.close()
    end_mps(folder, control)


def home(machine: LazyMachine, program: Program) -> None:
    until(lambda: machine.parking(program.pid)["state"] == "home")


def test_a_launch_runs_at_once_and_the_rest_comes_home(machine: LazyMachine) -> None:
    program = machine.run(*SPATIAL, size=100)
    changed, _ = machine.verb("park", program.pid)
    assert "100M left the GPU" in changed[0]["note"]
    machine.taken(MEMORY)  # no room at all
    assert program.do("launch") == "launched"
    until(lambda: machine.parking(program.pid)["state"] == "returning")
    assert machine.parking(program.pid)["parked_bytes"] == 100 * MIB
    assert machine.seen(program.pid)["state"] == "spatial"
    # the daemon tells what it sees when it looks
    until(lambda: any("it runs over host memory" in text for text in machine.told(program.pid)))
    assert program.do("launch") == "launched"
    machine.taken(0)
    home(machine, program)
    assert program.do("same") == "same"
    until(lambda: any("its memory is on GPU-" in text for text in machine.told(program.pid)))


@pytest.mark.parametrize("seed", after_first(range(2)))
def test_the_next_park_copies_what_changed_since_it_came_home(machine: LazyMachine, seed: int) -> None:
    dice = random.Random(seed)
    program = machine.run(*SPATIAL, size=64)
    for epoch in range(8):
        assert machine.verb("park", program.pid)[0]
        # one launch changes one grain, and one more moves for the check
        most = 2 * 2 * MIB if epoch else 64 * MIB
        assert machine.parking(program.pid)["copied_bytes"] <= most, epoch
        machine.taken(MEMORY)
        for _ in range(dice.randrange(1, 4)):  # over host memory
            assert program.do("launch") == "launched"
        machine.taken(0)
        if dice.random() < 0.5:  # on its way
            assert program.do("launch") == "launched"
        home(machine, program)
        for _ in range(dice.randrange(2)):
            assert program.do("launch") == "launched"
        if dice.random() < 0.5:
            assert program.do("same") == "same"
    assert machine.parking(program.pid)["kept_bytes"] == 64 * MIB
    assert program.do("same") == "same"


def test_resume_answers_when_it_can_run(machine: LazyMachine) -> None:
    program = machine.run(*SPATIAL, size=100)
    machine.verb("park", program.pid)
    machine.taken(MEMORY)
    changed, skipped = machine.verb("resume", program.pid)
    assert not skipped
    assert changed[0]["note"] == "it runs; 100M of its memory are still on their way home"
    machine.taken(0)
    home(machine, program)
    assert program.do("same") == "same"


@pytest.mark.rest
def test_its_host_memory_counts_for_the_arena(machine: LazyMachine) -> None:
    first, second = machine.run(*SPATIAL, size=200), machine.run(*SPATIAL, size=100)
    assert machine.verb("park", first.pid)[0]
    assert machine.parking(first.pid)["arena_bytes"] == 200 * MIB
    changed, skipped = machine.verb("park", second.pid)
    assert not changed
    assert "the arena of 256M has 56M left, and 100M are needed" in skipped[0]["reason"]
    assert machine.verb("resume", first.pid)[0]
    home(machine, first)
    # what the first only keeps is given back for the second
    assert machine.verb("park", second.pid)[0]
    assert (first.do("same"), second.do("same")) == ("same", "same")


def test_one_by_its_own_wish(folder: Path, control: Path) -> None:
    machine = LazyMachine.__new__(LazyMachine)
    machine.lazy = False
    machine.__init__(folder, control)  # type: ignore[misc]
    try:
        program = machine.run(*SPATIAL)
        machine.verb("park", program.pid)
        changed, _ = machine.verb("resume", program.pid, lazy=True)
        assert "its memory came back in" in changed[0]["note"]
        machine.verb("park", program.pid)
        machine.taken(MEMORY)
        changed, _ = machine.verb("resume", program.pid)
        assert "it runs; 40M of its memory" in changed[0]["note"]
        machine.taken(0)
        assert program.do("same") == "same"
    finally:
        machine.close()
        end_mps(folder, control)


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(2))
def test_kills_at_any_point_lose_nothing(machine: LazyMachine, seed: int) -> None:
    dice = random.Random(seed)
    keeper = machine.run(*SPATIAL, size=64)
    for _ in range(4):
        victim = machine.run(*SPATIAL, size=64)
        for program in (keeper, victim):
            machine.verb("park", program.pid)
        victim.ask("launch")
        if dice.random() < 0.5:
            keeper.ask("launch")
            assert keeper.answer() == "launched"
        time.sleep(dice.random() * 0.05)
        victim.process.kill()
        victim.process.communicate()
        machine.kill()
        assert keeper.do("launch") == "launched"
        machine.start()
        until(lambda: machine.seen(keeper.pid) and not machine.seen(victim.pid))  # noqa: B023
        assert keeper.do("same") == "same"
    # what the victims had is free
    last = machine.run(*SPATIAL, size=180)
    assert machine.verb("park", last.pid)[0]
    assert last.do("same") == "same"
