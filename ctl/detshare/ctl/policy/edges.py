# SPDX-License-Identifier: Apache-2.0
"""Who begins and who stops to work, from very many events: the newest of each tenant, and none of it too often."""

from __future__ import annotations

import heapq
import math
from typing import Final
from zlib import crc32

__all__ = ["GAP_S", "MOST_S", "Edges"]

GAP_S: Final = 0.1
"""an edge of a tenant that follows the last of its kind sooner waits so long, or up to a quarter longer; it may be over
by then"""
MOST_S: Final = 1000
"""edges a second, of all tenants that wait: where there are more, each waits longer"""


class Edges:
    """`hear` may be called by any thread, all else by one. Times in seconds of the caller's clock."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[bool, float]] = {}
        """name -> whether it has work, and when that was heard"""
        self._waiting: dict[str, tuple[bool, float, float]] = {}
        """name -> the newest, when it may be told, when it was heard"""
        self._due: list[tuple[float, str]] = []
        """a heap; what is not so in `_waiting` any more is passed over"""
        self._told: dict[tuple[bool, str], float] = {}

    def hear(self, name: str, active: bool, now: float) -> None:
        """An event. Cheap; what was heard of the tenant before it is forgotten."""
        self._heard[name] = (active, now)

    def take(self, now: float) -> list[tuple[str, bool, float]]:
        """Name, whether it has work, since when that could be told: those that may be told now."""
        found: list[tuple[str, bool, float]] = []
        for _ in range(len(self._heard)):
            name, (active, heard) = self._heard.popitem()
            if name in self._waiting:
                self._waiting[name] = active, self._waiting[name][1], heard
            else:
                self._offer(name, active, heard, now, found)
        while self._due and self._due[0][0] <= now:
            due, name = heapq.heappop(self._due)
            active, until, heard = self._waiting.get(name, (False, math.nan, 0.0))
            if until == due:
                del self._waiting[name]
                self._offer(name, active, max(due, heard), now, found)
        return found

    def _offer(self, name: str, active: bool, since: float, now: float, found: list[tuple[str, bool, float]]) -> None:
        gap = max(GAP_S, len(self._waiting) / MOST_S)
        spread = 1 + (crc32(name.encode()) & 255) / 1024  # or those told together would wait together for ever
        due = self._told.get((active, name), -math.inf) + gap * spread
        if due <= now:
            found.append((name, active, since))
        else:
            self._waiting[name] = active, due, since
            heapq.heappush(self._due, (due, name))

    def told(self, name: str, active: bool, now: float) -> None:
        """The policy hears of it."""
        self._told[active, name] = now

    def forget(self, name: str) -> None:
        """It went."""
        self._waiting.pop(name, None)
        for active in (False, True):
            self._told.pop((active, name), None)

    @property
    def next_due(self) -> float:
        """When the first of those that wait may be told; infinity where nobody waits."""
        return self._due[0][0] if self._due else math.inf
