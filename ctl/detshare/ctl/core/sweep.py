# SPDX-License-Identifier: Apache-2.0
"""Who holds descriptors of the driver, asked again and again: only what may have changed is read.

Source: proc(5), /proc/PID/fd: the size of the folder is the number of descriptors (Linux 6.2, else 0).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from detshare.ctl.core import procfs
from detshare.ctl.core.driver import Opener

__all__ = ["Sweep"]

ALL_S: Final = 2.0
"""everything is read as often: somebody may have closed one descriptor and opened another"""
ALL_FACTOR: Final = 1000
"""or after so many times what that took, if that is later: a machine with hundreds of processes"""
MOST_ALL_S: Final = 10.0
"""but no later: who makes a client, which is all that is done with such a descriptor, changes the number of clients"""
SLOW_S: Final = 0.02
"""a process that takes longer to read has so many descriptors that it could keep this one from all others"""
SLOW_FACTOR: Final = 50
"""it is read again after so many times what that took"""
_Fds = tuple[list[int], list[tuple[int, int]]]


class Sweep:
    """Not for two threads at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[int, tuple[int, _Fds]] = {}
        """PID -> how many descriptors it had, and which of them are the driver's"""
        self._slow: dict[int, tuple[int | None, float, _Fds]] = {}
        """PID -> its start, when it may be read again, and what was found"""
        self._clients: int | None = None
        self._all_at, self._all_s = float("-inf"), ALL_S
        self._counted = os.stat("/proc/self/fd").st_size > 0
        """this kernel counts descriptors, so 0 means none: the kernel's own threads are not listed each time"""

    def openers(self, clients: int | None = None) -> list[Opener]:
        """Every process but this one that holds a descriptor of an NVIDIA GPU or of /dev/nvidiactl.

        `clients`: how many RM has; another number than before, or None, and everything is read.
        """
        now, begun = self._clock(), time.thread_time()
        every = clients is None or clients != self._clients or now - self._all_at >= self._all_s
        if every:
            self._known, self._clients, self._all_at = {}, clients, now
        known, found, me = {}, [], os.getpid()
        for name in os.listdir("/proc"):
            if not name.isdigit() or (pid := int(name)) == me:
                continue
            try:
                count = os.stat(f"/proc/{pid}/fd").st_size
                if not count and self._counted:
                    continue
                before = self._known.get(pid)
                fds = before[1] if before is not None and 0 < count == before[0] else self._read(pid)
                known[pid] = count, fds
                start = procfs.start_time(pid) if fds[0] or fds[1] else None
                if start is not None:
                    found.append(procfs.describe(pid, start, *fds))
            except OSError:
                continue  # ended meanwhile, or another user's while we are not root
        self._known = known
        if every:
            self._all_s = min(max(ALL_S, ALL_FACTOR * (time.thread_time() - begun)), MOST_ALL_S)
        self._slow = {pid: slow for pid, slow in self._slow.items() if pid in known}
        return found

    def _read(self, pid: int) -> _Fds:
        start, again_at, fds = self._slow.get(pid, (None, 0.0, ([], [])))
        if start is not None and self._clock() < again_at and procfs.start_time(pid) == start:
            return fds
        begun = time.thread_time()
        fds = procfs.nvidia_fds(pid)
        if (took := time.thread_time() - begun) > SLOW_S:
            self._slow[pid] = procfs.start_time(pid), self._clock() + SLOW_FACTOR * took, fds
        else:
            self._slow.pop(pid, None)
        return fds
