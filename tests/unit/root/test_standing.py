# SPDX-License-Identifier: Apache-2.0
"""Classes that stand for commands: for programs that nobody asked anything for, and for no others."""

from __future__ import annotations

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core.backend import BadRequest
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program, truth

RULES = {"*train.py*": "low", "python3 *": "idle"}
LOW, IDLE, OWN = 50, 20, 2048
RIVAL = 1000  # of two whose slices would lock them up


def compute(driver: ModelDriver, process) -> int:
    return truth(driver, process)[0][0]


def test_the_first_pattern_that_matches_counts(backend: RootBackend, driver: ModelDriver) -> None:
    backend.stand(RULES)
    trained = scenario.cuda_process(driver, "python3 train.py")
    other = scenario.cuda_process(driver, "python3 other.py")
    served = scenario.cuda_process(driver, "vllm serve")
    backend.look()
    assert [compute(driver, each) for each in (trained, other, served)] == [RIVAL, RIVAL, OWN]
    assert [program(backend, each).klass for each in (trained, other, served)] == ["low", "idle", None]


def test_it_comes_with_the_context(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    backend.stand(RULES)
    process = scenario.opened_only(driver, "python3 train.py")
    backend.look()
    scenario.make_context(driver, process)
    clock.sleep(0.25)
    backend.look()
    assert LOW in {each[0] for each in truth(driver, process)}


def test_what_was_asked_by_hand_goes_before_it(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    process = scenario.cuda_process(driver, "python3 train.py")
    backend.set_slice(str(process.id.pid), 777)
    backend.stand(RULES)
    backend.look()
    assert compute(driver, process) == 777
    backend.set_priority(str(process.id.pid), "idle")
    clock.sleep(1.0)
    backend.look()
    assert compute(driver, process) == IDLE


def test_a_program_that_was_released_stays_as_it_was_found(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    backend.stand(RULES)
    process = scenario.cuda_process(driver, "python3 train.py")
    backend.look()
    assert compute(driver, process) == LOW
    assert backend.release(str(process.id.pid)).changed
    clock.sleep(1.0)
    backend.look()
    assert compute(driver, process) == OWN


def test_a_command_in_an_mps_servers_group_does_not_decide_for_all_in_it(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    server = programs.mps_server(driver)
    programs.mps_client(driver, server, "python3 train.py")
    backend.stand(RULES)
    for _ in range(3):
        backend.look()
        clock.sleep(1.0)
    assert compute(driver, server) == OWN
    assert program(backend, server).klass is None


def test_a_class_that_is_none_is_refused(backend: RootBackend) -> None:
    with pytest.raises(BadRequest, match="no class"):
        backend.stand({"*": "best"})
