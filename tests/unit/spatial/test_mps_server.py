# SPDX-License-Identifier: Apache-2.0
"""The MPS server of the spatial lane beside programs of the other one, on the model: each has what its class says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.spatial.mps_server import MpsServer, class_of
from detshare.ctl.core.snapshot import Program, State
from tests.unit.model import programs


class Machine:
    """An MPS server with two clients, and another program, below backend root."""

    def __init__(self, run_dir: Path) -> None:
        self.driver = ModelDriver()
        self.server = programs.mps_server(self.driver)
        clients = [programs.mps_client(self.driver, self.server).id for _ in range(2)]
        self.other = scenario.cuda_process(self.driver, "python3 train.py").id
        self.backend = RootBackend(self.driver, run_dir, name="model")
        self.follows = MpsServer(self.backend, lambda: [self.server.id.pid])
        self.mine = {each: Program(each, "python3 infer.py", "ann", "", State.SPATIAL) for each in clients}

    def look(self, *classes: str) -> Program:
        """One look of the daemon, with programs of these classes in the spatial lane; the server after it."""
        mine = [replace(each, klass=klass) for each, klass in zip(self.mine.values(), classes, strict=False)]
        self.follows.follow(self.backend.look().programs, mine)
        return next(each for each in self.backend.look().programs if each.id == self.server.id)

    @property
    def slices(self) -> set[int]:
        return {
            tsg.slice_us for tsg in self.driver.gpu_models[0].tsgs if tsg.pid == self.server.id.pid and not tsg.runlist
        }


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.backend.close()


@pytest.mark.parametrize(
    ("classes", "klass"),
    [
        ((), None),
        (("low",), "low"),
        (("idle", "low"), "low"),
        (("idle", "idle"), "idle"),
        (("low", "normal"), None),
        (("low", "high"), None),
        (("normal",), None),
    ],
)
def test_it_is_background_where_all_its_programs_are(
    machine: Machine, classes: tuple[str, ...], klass: str | None
) -> None:
    assert machine.look(*classes).klass == klass
    assert class_of([replace(each, klass=k) for each, k in zip(machine.mine.values(), classes, strict=False)]) == klass


def test_it_is_put_back_when_one_of_them_is_not_any_more(machine: Machine) -> None:
    found = machine.slices
    assert machine.look("low", "low").klass == "low"
    assert machine.slices != found
    assert machine.look("low", "high").klass is None
    assert machine.slices == found
    assert machine.look("idle", "idle").klass == "idle"
    assert machine.look().klass is None
    assert machine.slices == found


def test_what_is_set_for_it_stands_until_the_classes_of_its_programs_change(machine: Machine) -> None:
    who = str(machine.server.id.pid)
    machine.backend.set_priority(who, "normal")
    assert machine.look("high").klass == "normal"
    assert machine.look("low").klass == "low"
    machine.backend.set_slice(who, 700)  # a policy's, say: they would take it from each other with every look
    assert machine.look("low").klass is None
    assert machine.slices == {700}
    assert machine.look("idle").klass == "idle"


def test_what_an_earlier_daemon_gave_is_taken_back(machine: Machine) -> None:
    machine.look("low")
    machine.follows = MpsServer(machine.backend, lambda: [machine.server.id.pid])
    assert machine.look("high").klass is None


def test_no_other_server_is_touched(machine: Machine) -> None:
    strange = programs.mps_server(machine.driver)
    programs.mps_client(machine.driver, strange)
    machine.look("low", "low")
    classes = {each.id: each.klass for each in machine.backend.look().programs}
    assert classes[strange.id] is None
    assert classes[machine.other] is None
