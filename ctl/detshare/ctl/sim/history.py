# SPDX-License-Identifier: Apache-2.0
"""What a tenant's launches were like: the log2 histograms that a runtime's board has."""

from __future__ import annotations

import math
from typing import Final

from detshare.ctl.policy.types import Shape

__all__ = ["GRAPH", "History"]

GRAPH: Final = "graph"
MOST: Final = 16
THREADS: Final = 256


class History:
    """Counts by shape (name, blocks) and bucket: bucket b holds times from 2**(b-1) to 2**b microseconds."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], dict[int, int]] = {}
        self._shapes: tuple[Shape, ...] | None = ()

    def add(self, name: str, blocks: int, us: float, count: int) -> None:
        """So many launches of this shape took so long each."""
        buckets = self._counts.setdefault((name, blocks), {})
        bucket = max(0, math.ceil(math.log2(max(us, 1.0))))
        buckets[bucket] = buckets.get(bucket, 0) + count
        self._shapes = None

    def shapes(self) -> tuple[Shape, ...]:
        """Those that took most time first."""
        if self._shapes is None:
            made = [(_time(buckets), key, buckets) for key, buckets in self._counts.items()]
            made.sort(key=lambda each: -each[0])
            self._shapes = tuple(_shape(*key, buckets) for _, key, buckets in made[:MOST])
        return self._shapes


def _time(buckets: dict[int, int]) -> float:
    return sum(count * 2.0**bucket for bucket, count in buckets.items())


def _shape(name: str, blocks: int, buckets: dict[int, int]) -> Shape:
    total, seen, found = sum(buckets.values()), 0, []
    wanted = [0.5, 0.9, 0.99]
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        while wanted and seen >= wanted[0] * total:
            found.append(2.0**bucket)
            wanted.pop(0)
    return Shape(name, blocks, 0 if name == GRAPH else THREADS, total, *found)
