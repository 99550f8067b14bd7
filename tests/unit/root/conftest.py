# SPDX-License-Identifier: Apache-2.0
"""A model machine with a backend on it, under a clock that the test moves.

With DETSHARE_TEST_DRIVER=kernel the machine is the guest's: real processes, real ioctls, the simulated nvidia.ko
(tests/vm/test_ctl_root.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root.backend import RootBackend


class Clock:
    """A clock that moves a little at each reading, as real ones do, and by `sleep`.

    With a `tick` of a millisecond it goes as fast as the real one beside batches of questions: then searches end by
    their time and not at the last handle.
    """

    def __init__(self, tick: float = 1e-4) -> None:
        self.now = 1000.0
        self._tick = tick

    def __call__(self) -> float:
        self.now += self._tick
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


KERNEL = os.environ.get("DETSHARE_TEST_DRIVER") == "kernel"

MODEL_ONLY = {
    "test_two_contexts_and_two_gpus": "builds a model of two GPUs",
    "test_a_second_gpus_context_far_from_the_first_handles": "builds a model of two GPUs",
    "test_any_history_ends_as_it_began": "builds a model for each history; thousands of processes in a guest",
    "test_an_unknown_driver_branch_is_only_looked_at": "builds a model of an unknown branch",
    "test_who_allocates_without_rest_is_looked_at_as_seldom": "makes memory below what is no device",
    "test_client_numbers_that_wrapped": "sets the model's counter; here a million clients would have to be made",
    "test_clients_on_a_driver_that_ran_for_long": "makes 30 000 clients: a minute in a guest",
}
"""test -> why it says nothing about the driver in the guest"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if KERNEL else ():
        reason = MODEL_ONLY.get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"of the model only: {reason}"))
        elif getattr(item, "callspec", None) and item.callspec.params.get("victim_call", 0) % 15:
            item.add_marker(pytest.mark.skip(reason="every fifth moment is enough on an emulated processor"))


@pytest.fixture
def driver() -> Iterator[ModelDriver]:
    if not KERNEL:
        yield ModelDriver()
        return
    from tests.vm.guest.ctl_sim import SimDriver

    made = SimDriver()
    yield made  # type: ignore[misc]  # it has the surface that these tests use
    made.machine.end()
    made.close()


@pytest.fixture
def make(driver: ModelDriver, tmp_path: Path, clock: Clock) -> Callable[[], RootBackend]:
    """Builds a backend as a daemon would at its start."""

    def build() -> RootBackend:
        return RootBackend(driver, tmp_path, name="model", clock=clock)

    return build


@pytest.fixture
def backend(make: Callable[[], RootBackend]) -> RootBackend:
    return make()
