# SPDX-License-Identifier: Apache-2.0
"""Tenants that work for less than a turn at a time: they are asked sooner whether they rest."""

from __future__ import annotations

from typing import Final

SHORT_S: Final = 0.1
"""work that ends before is short"""
KNOWN_S: Final = 1.0
"""who rests for longer may be another one when it comes back"""
QUICK_S: Final = 0.005
"""between two looks at one, and two questions"""


class Sleepers:
    """Of one driver. Seconds of the caller's clock."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        """tenant -> when it was found at rest after short work"""

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
