# SPDX-License-Identifier: Apache-2.0
"""Parts by weight: of whole things, and of time, corrected by what tenants had of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from detshare.ctl.policy.types import TenantView

__all__ = ["Correction", "apportion"]

MOST: Final = 2.0
"""a slice is made so many times longer or shorter at most"""
FAR: Final = 0.1
"""shares that are off by more are brought all the way at once: what is measured wobbles by less"""
CLOSE: Final = 0.03
"""shares that are off by no more than this part of them stand"""


def apportion(weights: Sequence[float], whole: int) -> list[int]:
    """Whole parts that add up to ``whole``, by largest remainders; each at least 1 as long as there are enough."""
    total = sum(weights)
    exact = [whole * weight / total for weight in weights]
    parts = [int(each) for each in exact]
    order = sorted(range(len(parts)), key=lambda index: (parts[index] - exact[index], index))
    for index in order[: whole - sum(parts)]:
        parts[index] += 1
    while parts and min(parts) < 1 < max(parts):
        parts[parts.index(max(parts))] -= 1
        parts[parts.index(min(parts))] += 1
    return parts


class Correction:
    """Of slices, for who rests in mid-slice gives the rest of it away. One for each policy object."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}
        self._used: dict[str, dict[str, float]] = {}
        """GPU -> tenants that worked at the last look, and their GPU time then"""

    def factor(self, tenant: str) -> float:
        """What its slice is to be multiplied by."""
        return self._factors.get(tenant, 1.0)

    def forget(self, tenant: str) -> None:
        """It came anew, or went."""
        self._factors.pop(tenant, None)

    def look(self, gpu: str, working: Mapping[str, TenantView], weights: Mapping[str, float]) -> bool:
        """Whether factors changed. Those of all who worked at the last look, too, move to where shares would be as
        `weights` are; half of the way (in logarithms) where they are close to that."""
        before, now = self._used.get(gpu, {}), {name: each.used_us for name, each in working.items()}
        self._used[gpu] = now
        had = {name: used - before.get(name, used) for name, used in now.items()}
        if len(now) < 2 or before.keys() != now.keys() or min(had.values()) <= 0:
            return False
        whole, heavy = sum(had.values()), sum(weights[name] for name in now)
        behind = {name: weights[name] / heavy / (each / whole) for name, each in had.items()}
        off = max(abs(each - 1) for each in behind.values())
        if off <= CLOSE:
            return False
        made = {name: self.factor(name) * each ** (1.0 if off > FAR else 0.5) for name, each in behind.items()}
        middle = sum(made.values()) / len(made)
        self._factors |= {name: min(max(each / middle, 1 / MOST), MOST) for name, each in made.items()}
        return True
