# SPDX-License-Identifier: Apache-2.0
"""What the guest's tests of the control plane share: a machine with programs, and a memory hog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.module.backend import KmodBackend
from detshare.ctl.netlink.link import Link
from tests.vm.guest.ctl_sim import DEBUGFS, SimDriver, SimProcess

NO_MEMORY = 0x51  # NV_ERR_NO_MEMORY
LOCAL_MEMORY = 0x40  # NV01_MEMORY_LOCAL_USER
GIB = 1 << 30


class Hog:
    """A process with a device, which allocates device memory when told to."""

    def __init__(self, driver: SimDriver, command: str = "hog", process: SimProcess | None = None) -> None:
        self.rm = driver.rm
        self.process = process or driver.machine.spawn(command)
        _, self.file, self.client = scenario.new_client(driver, self.process)  # type: ignore[arg-type]
        status, self.device = self.rm.alloc(self.file, self.client, self.client, 0x5C000002, 0x80)
        assert status == 0
        self._next = 0x5C001000

    @property
    def pid(self) -> int:
        return self.process.id.pid

    def take(self, size: int) -> tuple[int, int]:
        """(RM status, handle) of one allocation."""
        self._next += 1
        return self.rm.alloc(self.file, self.client, self.device, self._next, LOCAL_MEMORY, size=size)

    def give(self, handle: int) -> int:
        return self.rm.free(self.file, self.client, handle)


def used(gpu: int = 0) -> int:
    """Bytes taken from the GPU's heap: the ground truth."""
    return int((DEBUGFS / f"gpu{gpu}" / "used").read_text())


@pytest.fixture
def driver() -> Iterator[SimDriver]:
    made = SimDriver()
    yield made
    made.machine.end()
    made.close()


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    yield made
    made.close()


@pytest.fixture
def backend(driver: SimDriver, tmp_path: Path) -> Iterator[KmodBackend]:
    made = KmodBackend(Link(), driver, tmp_path)
    yield made
    made.close()
