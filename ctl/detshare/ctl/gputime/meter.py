# SPDX-License-Identifier: Apache-2.0
"""The last seconds of one GPU: runs by program, and what they sum up to."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from operator import sub
from statistics import median
from types import MappingProxyType
from typing import Final

from detshare.ctl.core.gputime import SLOT_S, SLOTS, GpuTime, Run, Switch
from detshare.ctl.gputime.runs import RunBook

KEEP_NS: Final = round(SLOT_S * SLOTS * 1e9)
"""runs that ended earlier are forgotten"""
MOST_RUNS: Final = 50_000
RESTORE_NS: Final = 165_000
"""of each run its context is restored for so long, and nothing of the program runs (docs/use/scheduling.md)"""
_SLOT_NS: Final = round(SLOT_S * 1e9)


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
        self._last: dict[int, int] = {}
        """PID -> when it could work last"""

    def feed(self, switches: Iterable[Switch], now_ns: int, dropped: int = 0) -> list[Run]:
        """Take new records; the runs that they closed. `dropped`: records that the log lost in all."""
        if dropped != self._dropped:
            self._dropped = dropped
            self._book.lost()
        closed = self._book.feed(switches)
        if self._blank and (closed or self._book.open_runs(now_ns)):
            self._blank = False
        self._runs.extend(closed)
        self.now_ns = max(now_ns, self.now_ns, closed[-1].end_ns if closed else 0)
        self._began_ns = self._began_ns or self.now_ns
        runs, oldest_ns = self._runs, self.now_ns - KEEP_NS
        while runs and runs[0].end_ns < oldest_ns:
            runs.popleft()
        last = self._last
        for pid, start_ns, end_ns in closed:
            if end_ns - start_ns > RESTORE_NS:
                last[pid] = end_ns
        if len(self._last) > MOST_RUNS:
            self._last.clear()
        return closed

    def since(self, start_ns: int) -> list[Run]:
        """Closed runs that ended after `start_ns`, and the open one; none begins earlier."""
        found: list[Run] = []
        for run in reversed(self._runs):
            if run.end_ns <= start_ns:
                break
            found.append(run)
        found.reverse()
        found += self.open()
        if found and found[0].start_ns < start_ns:  # no two overlap
            found[0] = found[0]._replace(start_ns=start_ns)
        return found

    def open(self) -> list[Run]:
        """The run that goes on: one, or none."""
        return self._book.open_runs(self.now_ns)

    def worked_ns(self, pid: int) -> int | None:
        """When a program could work last, on the GPU's clock; None: not since it was seen first."""
        for run in self.open():
            if run.pid == pid and useful_ns(run):
                return run.end_ns
        return self._last.get(pid)

    def times(self, wanting: Mapping[int, float] = MappingProxyType({})) -> dict[int, GpuTime]:
        """PID -> what it had of the last seconds. `wanting`: PIDs of programs that have work -> for how many seconds,
        at most."""
        span_ns = min(KEEP_NS, self.now_ns - self._began_ns)
        if span_ns <= 0:
            return {}
        begin_ns = self.now_ns - span_ns
        by_pid: dict[int, list[Run]] = defaultdict(list)
        for run in self.since(begin_ns):
            by_pid[run[0]].append(run)
        return {
            pid: self._time(pid, by_pid.get(pid, []), span_ns, wanting.get(pid, 0.0)) for pid in {*by_pid, *wanting}
        }

    def _time(self, pid: int, runs: list[Run], span_ns: int, wants_s: float) -> GpuTime:
        starts, ends = [run[1] for run in runs], [run[2] for run in runs]
        gaps, lengths = list(map(sub, starts[1:], ends)), list(map(sub, ends, starts))
        upto = list(accumulate(lengths, initial=0))
        lengths.sort()
        short = bisect_right(lengths, RESTORE_NS)
        useful = upto[-1] - sum(lengths[:short]) - RESTORE_NS * (len(lengths) - short)
        worked = self.worked_ns(pid)
        idle_ns = 0 if self._blank else self.now_ns - (self._began_ns if worked is None else worked)
        return GpuTime(
            gpu=self.gpu,
            seconds=round(span_ns / 1e9, 3),
            share=round(upto[-1] / span_ns, 4),
            useful=round(useful / span_ns, 4),
            switches_s=round(len(runs) * 1e9 / span_ns, 1),
            run_us=round(median(lengths) / 1000, 1) if runs else 0.0,
            gap_us=round(median(gaps) / 1000, 1) if gaps else 0.0,
            history=self._history(starts, ends, upto, span_ns),
            stalled_s=round(min(wants_s, idle_ns / 1e9), 2),
        )

    def _history(self, starts: list[int], ends: list[int], upto: list[int], span_ns: int) -> tuple[float, ...]:
        """Of runs in order of time. `upto`: how long those before each, and all of them, are together.

        Differences of what was done until the border of each slot: few borders, many runs.
        """
        slots = max(1, span_ns // _SLOT_NS)
        done = []
        for border in range(self.now_ns - slots * _SLOT_NS, self.now_ns + 1, _SLOT_NS):
            over = bisect_right(ends, border)
            begun = border - starts[over] if over < len(starts) else 0
            done.append(upto[over] + (begun if begun > 0 else 0))
        return tuple(round(min(1.0, (now - then) / _SLOT_NS), 3) for then, now in pairwise(done))
