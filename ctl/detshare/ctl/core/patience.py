# SPDX-License-Identifier: Apache-2.0
"""How long something is waited for: as long as it makes progress, however slow the machine is.

What does nothing for a while hangs: none of its threads runs, waits for a processor, or for a disk. What only spends
processor time, or stays at a disk, hangs too, after far more of it. Neither clock goes while this machine does other
things, or while a cgroup's quota is used up: the kernel counts that as waiting for a processor
(/proc/PID/task/TID/schedstat, sched-stats.rst). A kernel without scheduling statistics lacks that file: its ticks tell
what ran, and a thread that can run just now is taken to have waited since the last look.
In a guest a disk is its host, which may have little time for it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

BUSY_S: Final = 600.0
"""seconds of one thread on a processor, or at a disk, without a result, by default"""
_STEP_S: Final = 0.2
"""between two looks at most: what comes and goes in between is not seen"""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


class Patience:
    """Two clocks over a process and all below it, from now on.

    `idle_s`: so many seconds may it do nothing. `busy_s`: so many may a thread be on a processor or at a disk.
    `pid`: the process, this one by default. One that is gone does nothing.
    """

    def __init__(
        self,
        idle_s: float,
        pid: int | None = None,
        busy_s: float = BUSY_S,
        clock: Callable[[], float] = time.monotonic,
        proc: Path = _PROC,
    ) -> None:
        self.idle_s, self.busy_s = idle_s, busy_s
        self.idle = self.busy = 0.0
        self._pid = os.getpid() if pid is None else pid
        self._clock, self._proc = clock, proc
        self._at = clock()
        self._seen = self._look()[0]

    def spent(self) -> str:
        """Why to wait no longer, in words that follow "it"; empty: wait on. Call it several times a second."""
        now = self._clock()
        passed = now - self._at
        if passed >= _STEP_S:
            seen, at_disk, ready = self._look()
            ran = passed if at_disk else 0.0
            waited = passed if at_disk or ready else 0.0
            for thread, (run, wait) in seen.items():
                before = self._seen.get(thread, (0.0, 0.0))
                ran = max(ran, run - before[0])
                waited = max(waited, run - before[0] + wait - before[1])
            self.busy += min(passed, ran)
            self.idle += max(0.0, passed - waited)
            self._at, self._seen = now, seen
        if self.idle >= self.idle_s:
            return f"did nothing for {self.idle_s:g} s"
        if self.busy >= self.busy_s:
            return f"spent {self.busy_s:g} s on a processor or at a disk without a result"
        return ""

    def progress(self) -> None:
        """It gave a sign of work done: the processor time before does not count."""
        self.busy = 0.0

    def _look(self) -> tuple[dict[tuple[int, int], tuple[float, float]], bool, bool]:
        """By process and thread, 0 for its ended children: seconds that it ran, and that it waited for a processor.

        Then, whether one of them waits for a disk just now; whether one can run that keeps no time of its waiting.
        """
        found: dict[tuple[int, int], tuple[float, float]] = {}
        at_disk = ready = False
        left, known = [self._pid], {self._pid}
        while left:
            pid = left.pop()
            with contextlib.suppress(OSError, ValueError, IndexError):
                # short ones that came and went below it: in ticks, known once they were waited for
                last = self._stat(self._proc / str(pid))
                found[pid, 0] = ((int(last[13]) + int(last[14])) / _TICKS, 0.0)
                for task in os.listdir(self._proc / str(pid) / "task"):
                    folder = self._proc / str(pid) / "task" / task
                    with contextlib.suppress(OSError, ValueError, IndexError):
                        stat = self._stat(folder)
                        at_disk = at_disk or stat[0] == b"D"
                        try:
                            words = (folder / "schedstat").read_text(encoding="ascii").split()
                            found[pid, int(task)] = (int(words[0]) / 1e9, int(words[1]) / 1e9)
                        except FileNotFoundError:
                            found[pid, int(task)] = ((int(stat[11]) + int(stat[12])) / _TICKS, 0.0)
                            ready = ready or stat[0] == b"R"
                        below = [int(each) for each in (folder / "children").read_text(encoding="ascii").split()]
                        left += [each for each in below if each not in known]
                        known.update(below)
        return found, at_disk, ready

    def _stat(self, folder: Path) -> list[bytes]:
        """The words of stat from the third on: its state first."""
        return (folder / "stat").read_bytes().rpartition(b") ")[2].split()
