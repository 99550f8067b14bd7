# SPDX-License-Identifier: Apache-2.0
"""A model machine with a backend on it, under a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root import RootBackend


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


@pytest.fixture
def driver() -> ModelDriver:
    return ModelDriver()


@pytest.fixture
def make(driver: ModelDriver, tmp_path: Path, clock: Clock) -> Callable[[], RootBackend]:
    """Builds a backend as a daemon would at its start."""

    def build() -> RootBackend:
        return RootBackend(driver, tmp_path, name="model", clock=clock)

    return build


@pytest.fixture
def backend(make: Callable[[], RootBackend]) -> RootBackend:
    return make()
