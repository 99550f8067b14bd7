# SPDX-License-Identifier: Apache-2.0
"""A program's GPU descriptors, duplicated into the daemon, so that what it has on the GPU outlives it for a while.

The driver frees a program's memory and code when the last descriptor of its files is closed, and does not wait for a
kernel that runs: that kernel then faults, and MPS ends the contexts of all its clients (measured: each kill in a
kernel of 20 ms or more). With a duplicate here, kernels of a killed program end as if it lived, and nobody notices.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import resource
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from detshare.ctl.core.pidfd import getfd

DEVICES: Final = "/dev/nvidia"
"""what the paths of the driver's device files begin with"""
MOST: Final = 1024
"""of one program: some 20 are usual, and each is one of this process's own"""


def _files(pid: int) -> Iterator[int]:
    """Descriptors of a process that are the driver's device files. OSError where it ended or may not be read."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        if _is_device(f"{folder}/{name}"):
            yield int(name)


def _is_device(path: str) -> bool:
    try:
        return os.readlink(path).startswith(DEVICES) and stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def make_room() -> None:
    """Let this process have as many descriptors as it may: some 20 for each program."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Descriptors:
    """Duplicates of one program's GPU descriptors."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self._pid = pid
        self._pidfd = pidfd
        self._copies: dict[int, int] = {}
        """by the number that each has in the program"""

    def __len__(self) -> int:
        return len(self._copies)

    def take(self) -> None:
        """Have all that the program has now. OSError: EPERM where it may not be; what was had before stays then, and
        also where the program has none any more, for it may be ending."""
        fresh: dict[int, int] = {}
        try:
            for number in heapq.nsmallest(MOST, _files(self._pid)):
                try:
                    fresh[number] = getfd(self._pidfd, number)
                except PermissionError:
                    raise
                except OSError:
                    continue  # closed meanwhile
        except OSError:
            _close(fresh.values())
            raise
        if fresh:
            _close(self._copies.values())
            self._copies = fresh

    @property
    def let_go(self) -> bool:
        """Whether a living program closed what we hold: it became another one (exec)."""
        return bool(self._copies) and not any(_is_device(f"/proc/{self._pid}/fd/{number}") for number in self._copies)

    def close(self) -> None:
        """Give them back: where the program has ended, the driver frees what it had. Idempotent."""
        _close(self._copies.values())
        self._copies = {}


def _close(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        with contextlib.suppress(OSError):
            os.close(each)
