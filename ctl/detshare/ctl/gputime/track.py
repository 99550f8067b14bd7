# SPDX-License-Identifier: Apache-2.0
"""The last runs of one program on one GPU, kept so that summing them up costs what is new of them, not their number."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, islice, pairwise
from operator import sub
from typing import Final, NamedTuple

from detshare.ctl.core.gputime import SLOT_S, Run

RESTORE_NS: Final = 165_000
"""of each run its context is restored for so long, and nothing of the program runs (docs/use/scheduling.md)"""
_SLOT_NS: Final = round(SLOT_S * 1e9)
_STEPS: Final = 1000
"""a share of a slot is told in so many steps"""
_STEP_NS: Final = _SLOT_NS // _STEPS
_SHARES: Final = tuple(step / _STEPS for step in range(_STEPS + 1))


class Sums(NamedTuple):
    """What the runs of a span are together."""

    runs: int
    ns: int
    useful_ns: int
    run_ns: float
    """median length; 0 without a run"""
    gap_ns: float
    """median time between two; 0 with fewer than two"""
    history: tuple[float, ...]
    """share of each slot, oldest first"""


class _Part(NamedTuple):
    """Runs that were added together. Ordered parts are merged much faster than runs are ordered."""

    size: int
    lengths: array[int]
    gaps: array[int]
    """before each run; both ordered. Of the oldest part nobody reads them: some of its runs may be gone"""


class Track:
    """Closed runs, oldest first; no two overlap.

    Times are those of records, 64 bits without a sign. Arrays of them are read once a look, so that they are small.
    """

    def __init__(self) -> None:
        self._starts = array("Q")
        self._ends = array("Q")
        self._upto = array("Q", [0])
        """how long the runs before each, and all of them, are together, from some zero on"""
        self._parts: deque[_Part] = deque()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, runs: Sequence[Run]) -> None:
        """Later ones than all before; one at least."""
        _, starts, ends = zip(*runs, strict=True)
        lengths = list(map(sub, ends, starts))
        before = self._ends[-1:]
        gaps = sorted(map(sub, starts if before else starts[1:], (*before, *ends)))
        self._starts.extend(starts)
        self._ends.extend(ends)
        self._upto.extend(islice(accumulate(lengths, initial=self._upto[-1]), 1, None))
        lengths.sort()
        self._parts.append(_Part(len(starts), array("Q", lengths), array("Q", gaps)))

    def forget(self, begin_ns: int, oldest_ns: int) -> None:
        """Runs that ended at `begin_ns` or before, or before `oldest_ns`."""
        gone = max(bisect_right(self._ends, begin_ns), bisect_left(self._ends, oldest_ns))
        if not gone:
            return
        del self._starts[:gone], self._ends[:gone], self._upto[:gone]
        while self._parts and gone >= self._parts[0].size:
            gone -= self._parts.popleft().size
        if gone:
            self._parts[0] = _Part(self._parts[0].size - gone, array("Q"), array("Q"))

    def sums(self, begin_ns: int, now_ns: int, open_ns: int | None) -> Sums:
        """From `begin_ns`, until which was forgotten, to now. `open_ns`: when the run began that goes on."""
        starts, ends, upto = self._starts[:], self._ends[:], self._upto[:]
        if starts and (early := begin_ns - starts[0]) > 0:
            starts[0] += early
            upto[0] += early
        oldest = self._parts[0].size if self._parts else 0
        lengths, gaps = list(map(sub, ends[:oldest], starts)), list(map(sub, starts[1:oldest], ends))
        for part in islice(self._parts, 1, None):
            lengths += part.lengths
            gaps += part.gaps
        if open_ns is not None:
            since_ns = max(open_ns, begin_ns)
            gaps += [since_ns - end for end in ends[-1:]]
            lengths.append(now_ns - since_ns)
            starts.append(since_ns)
            ends.append(now_ns)
            upto.append(upto[-1] + now_ns - since_ns)
        lengths.sort()
        gaps.sort()
        whole = upto[-1] - upto[0]
        short = bisect_right(lengths, RESTORE_NS)
        useful = whole - sum(lengths[:short]) - RESTORE_NS * (len(lengths) - short)
        history = _history(starts, ends, upto, now_ns, max(1, (now_ns - begin_ns) // _SLOT_NS))
        return Sums(len(lengths), whole, useful, _middle(lengths), _middle(gaps), history)


def _middle(ordered: list[int]) -> float:
    """The median."""
    half = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _history(starts: array[int], ends: array[int], upto: array[int], now_ns: int, slots: int) -> tuple[float, ...]:
    """Differences of what was done until the border of each slot: few borders, many runs."""
    starts.append(now_ns)  # no border is later
    done = []
    for border in range(now_ns - slots * _SLOT_NS, now_ns + 1, _SLOT_NS):
        over = bisect_right(ends, border)
        begun = border - starts[over]
        done.append(upto[over] + begun if begun > 0 else upto[over])
    return tuple([_SHARES[min((now - then + _STEP_NS // 2) // _STEP_NS, _STEPS)] for then, now in pairwise(done)])
