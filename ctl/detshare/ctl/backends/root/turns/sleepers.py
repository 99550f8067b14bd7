# SPDX-License-Identifier: Apache-2.0
"""Tenants that work for less than a turn at a time: they are asked sooner whether they rest.

The driver calls a program at rest that has a moment of it while it is asked (`RmClient.idle`), and who launches slower
than the GPU computes has such moments all the time. Whoever is back at once did not rest: it is not asked for a while.
"""

from __future__ import annotations

from typing import Final

SHORT_S: Final = 0.1
"""work that ends before is short"""
KNOWN_S: Final = 1.0
"""who rests for longer may be another one when it comes back"""
QUICK_S: Final = 0.005
"""between two looks at one, and two questions"""
BRIEF_NS: Final = 3_000_000
"""a shorter rest serves nobody: passing the turn on and back takes as long"""
BRIEFS: Final = 2
"""so many brief ones in a row: the question may have come at the end of a longer one"""
RESTLESS_S: Final = 0.5
"""it is not asked for so long, and for up to four times as long if it did not rest then either"""


class Sleepers:
    """Of one driver. Seconds of the caller's clock."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        """tenant -> when it was found at rest after short work"""
        self._brief: dict[str, tuple[int, float]] = {}
        """tenant -> brief rests in a row, and when the last one ended"""

    def rested(self, key: str, begun: float, now: float) -> None:
        """A tenant has no more work; its turn began then."""
        if now - begun < SHORT_S:
            self._known[key] = now
        else:
            self._known.pop(key, None)

    def holds(self, key: str, begun: float, now: float) -> bool:
        """Whether the holder of a turn is likely to rest soon."""
        if now - begun >= SHORT_S:
            self._known.pop(key, None)
        return key in self._known

    def expects(self, now: float) -> bool:
        """Whether one may come back at any moment."""
        return any(now - at < KNOWN_S for at in self._known.values())

    def woke(self, key: str, rested_ns: int, now: float) -> None:
        """A tenant that was found at rest runs again, so long after it was asked."""
        if rested_ns >= BRIEF_NS:
            self._brief.pop(key, None)
            return
        self._brief[key] = self._brief.get(key, (0, 0.0))[0] + 1, now
        if self._brief[key][0] >= BRIEFS:
            self._known.pop(key, None)

    def yielded(self, key: str, now: float) -> None:
        """A run of a tenant ended before its slice did: if it had brief rests, it still has."""
        if self.restless(key, now):
            self._brief[key] = self._brief[key][0], now

    def restless(self, key: str, now: float) -> bool:
        """Whether what the driver says of a tenant's rest is of moments between its launches."""
        count, at = self._brief.get(key, (0, 0.0))
        return count >= BRIEFS and now - at < RESTLESS_S * 2 ** min(count - BRIEFS, 2)
