# SPDX-License-Identifier: Apache-2.0
"""The last seconds of one GPU: runs by program, and what they sum up to."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from detshare.ctl.core.gputime import SLOT_S, SLOTS, GpuTime, Run, Switch
from detshare.ctl.gputime.runs import RunBook
from detshare.ctl.gputime.track import RESTORE_NS, Track

__all__ = ["KEEP_NS", "MOST_RUNS", "RESTORE_NS", "Meter", "useful_ns"]

KEEP_NS: Final = round(SLOT_S * SLOTS * 1e9)
"""runs that ended earlier are forgotten"""
MOST_RUNS: Final = 50_000
_MOST_NEW: Final = 4096
"""so many new runs are sorted by program even if nobody asks for times"""


def useful_ns(run: Run) -> int:
    """Nanoseconds of a run in which the program could work."""
    return max(0, run.end_ns - run.start_ns - RESTORE_NS)


class Meter:
    """Runs of one GPU. Not for two threads at once."""

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.now_ns = 0
        self._book = RunBook()
        self._runs: deque[Run] = deque(maxlen=MOST_RUNS)
        self._dropped = 0
        self._began_ns = 0
        self._blank = True
        """nothing was seen yet: whoever has work may have had the GPU all the while"""
        self._new: list[Run] = []
        """closed, and not sorted by program yet"""
        self._tracks: dict[int, Track] = defaultdict(Track)
        self._lost = False
        """records were lost, and no run was seen since"""
        self._last: dict[int, int] = {}
        """PID -> when it could work last, without the new"""

    def feed(self, switches: Iterable[Switch], now_ns: int, dropped: int = 0) -> list[Run]:
        """Take new records; the runs that they closed. `dropped`: records that the log lost in all."""
        if dropped != self._dropped:
            self._dropped = dropped
            self._book.lost()
            self._lost = True
        closed = self._book.feed(switches)
        if (self._blank or self._lost) and (closed or self._book.open_runs(now_ns)):
            self._blank = self._lost = False
        self._runs.extend(closed)
        self.now_ns = max(now_ns, self.now_ns, closed[-1].end_ns if closed else 0)
        self._began_ns = self._began_ns or self.now_ns
        runs, oldest_ns = self._runs, self.now_ns - KEEP_NS
        while runs and runs[0][2] < oldest_ns:
            runs.popleft()
        self._new += closed
        if len(self._new) > _MOST_NEW:
            self._sort()
        return closed

    def _sort(self) -> None:
        """The new runs by program."""
        by_pid: dict[int, list[Run]] = defaultdict(list)
        for run in self._new:
            by_pid[run[0]].append(run)
        self._new.clear()
        for pid, runs in by_pid.items():
            self._tracks[pid].add(runs)
            worked = next((end for _, start, end in reversed(runs) if end - start > RESTORE_NS), None)
            if worked is not None:
                self._last[pid] = worked
        if len(self._last) > MOST_RUNS:
            self._last.clear()
        self._forget()

    def _forget(self) -> None:
        oldest_ns = self._runs[0].end_ns if self._runs else self.now_ns + 1
        for track in self._tracks.values():
            track.forget(self.now_ns - self._span_ns(), oldest_ns)
        for pid in [pid for pid, track in self._tracks.items() if not track]:
            del self._tracks[pid]

    def _span_ns(self) -> int:
        return min(KEEP_NS, self.now_ns - self._began_ns)

    def since(self, start_ns: int) -> list[Run]:
        """Closed runs that ended after `start_ns`, and the open one; none begins earlier."""
        found: list[Run] = []
        for run in reversed(self._runs):
            if run[2] <= start_ns:  # its end: an index takes a third of an attribute's time
                break
            found.append(run)
        found.reverse()
        found += self.open()
        if found and found[0].start_ns < start_ns:  # no two overlap
            found[0] = found[0]._replace(start_ns=start_ns)
        return found

    @property
    def sure(self) -> bool:
        """Whether nobody else can have the GPU now, and all the while since somebody was seen having it."""
        return not (self._blank or self._lost)

    def open(self) -> list[Run]:
        """The run that goes on: one, or none."""
        return self._book.open_runs(self.now_ns)

    def worked_ns(self, pid: int) -> int | None:
        """When a program could work last, on the GPU's clock; None: not since it was seen first."""
        self._sort()
        for run in self.open():
            if run.pid == pid and useful_ns(run):
                return run.end_ns
        return self._last.get(pid)

    def times(self, wanting: Mapping[int, float] = MappingProxyType({})) -> dict[int, GpuTime]:
        """PID -> what it had of the last seconds. `wanting`: PIDs of programs that have work -> for how many seconds,
        at most."""
        span_ns = self._span_ns()
        if span_ns <= 0:
            return {}
        self._sort()
        opened = {run.pid: run.start_ns for run in self.open()}
        return {
            pid: self._time(pid, self._tracks.get(pid) or Track(), opened.get(pid), span_ns, wanting.get(pid, 0.0))
            for pid in {*self._tracks, *opened, *wanting}
        }

    def _time(self, pid: int, track: Track, open_ns: int | None, span_ns: int, wants_s: float) -> GpuTime:
        sums = track.sums(self.now_ns - span_ns, self.now_ns, open_ns)
        if open_ns is not None and self.now_ns - open_ns > RESTORE_NS:
            worked: int | None = self.now_ns
        else:
            worked = self._last.get(pid)
        idle_ns = 0 if self._blank else self.now_ns - (self._began_ns if worked is None else worked)
        return GpuTime(
            gpu=self.gpu,
            seconds=round(span_ns / 1e9, 3),
            share=round(sums.ns / span_ns, 4),
            useful=round(sums.useful_ns / span_ns, 4),
            switches_s=round(sums.runs * 1e9 / span_ns, 1),
            run_us=round(sums.run_ns / 1000, 1),
            gap_us=round(sums.gap_ns / 1000, 1),
            history=sums.history,
            stalled_s=round(min(wants_s, idle_ns / 1e9), 2),
        )
