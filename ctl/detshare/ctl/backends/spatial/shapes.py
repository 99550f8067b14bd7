# SPDX-License-Identifier: Apache-2.0
"""Which kernels a program of the spatial lane launches, by grid and block, from its counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from detshare.ctl.core.work import ShapeTimes, times
from detshare.runtime import board_layout as layout

__all__ = ["shapes"]


def shapes(boards: Iterable[Mapping[str, int | list[int]]]) -> tuple[ShapeTimes, ...]:
    """Of all GPUs of a program together, those that take most time first. What it wrote there need not be true."""
    taken: dict[tuple[int, int], int] = defaultdict(int)
    counts: dict[tuple[int, int], list[int]] = {}
    for counters in boards:
        columns = [_array(counters, f"shape_{name}") for name in ("blocks", "threads", "ns")]
        hist = _array(counters, "shape_hist")
        for number, (blocks, threads, ns) in enumerate(zip(*columns, strict=True)):
            if not blocks:
                continue
            mine = hist[number * layout.HIST_BUCKETS : (number + 1) * layout.HIST_BUCKETS]
            before = counts.get((blocks, threads), [0] * len(mine))
            counts[blocks, threads] = [sum(pair) for pair in zip(before, mine, strict=True)]
            taken[blocks, threads] += ns
    ranked = sorted(counts, key=lambda shape: (-taken[shape], shape))[: layout.SHAPES]
    found = [(shape, times(counts[shape])) for shape in ranked]
    return tuple(ShapeTimes(blocks, threads, seen) for (blocks, threads), seen in found if seen is not None)


def _array(counters: Mapping[str, int | list[int]], name: str) -> Sequence[int]:
    value = counters[name]
    assert isinstance(value, list)
    return value
