# SPDX-License-Identifier: Apache-2.0
"""``strict``: while a higher class works, lower ones wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from detshare.ctl.policy.shipped.asked import RANKS, Asked, rank
from detshare.ctl.policy.types import Action, ClassRow, Policy, Reflex, Snapshot

__all__ = ["Strict", "rows"]


def rows(now: Snapshot, floors: dict[str, int], linger_us: int, reason: str) -> list[ClassRow]:
    """Ranks a hundred apart, and the permille of the time that a class has in any case; where nobody gates launches
    these alone, for there the turns go by class already."""
    if not now.rows:
        kept = floors if now.floors else {}
        return [ClassRow(klass, floor_permille=floor, reason=reason) for klass, floor in kept.items()]
    return [
        ClassRow(klass, rank=200 + 100 * order, linger_us=linger_us, floor_permille=floors.get(klass), reason=reason)
        for klass, order in RANKS.items()
    ]


class Strict(Policy):
    """Rule: while a tenant of a higher class is active, those of lower classes are held, up to a floor.

    Temporal lane: the rows of the four classes get ranks, once; the mechanism gates and lets go by itself. Without
    detshare.ko no launch is gated: there the turns go by class, and this sets their floors. Spatial lane: each tenant
    below class high gets a reflex that holds it, once. Nothing is decided per launch.

    Source: fixed-priority preemptive scheduling; ranks, linger and floors are those of docs/how/module-scheduling.md.
    Limits: a class waits up to 100 ms for its floor, and one floor is the longest that a higher class waits. Each burst
    costs the gate's fault and, where something is paused, two calls of the driver: dear for short bursts
    (docs/use/module.md). By turns alone a lower class runs in the gaps of higher ones, and waits for no launch of
    theirs.
    """

    lacks = {
        "rows": "no launch is gated without detshare.ko: lower classes run in gaps of higher ones, else their floor",
        "floors": "nobody rotates the background here: the class rule stands, and nothing else",
    }

    @dataclass(frozen=True)
    class Params:
        """Floors in percent of each 100 ms; linger_us: quiet for so long is not active any more."""

        normal: float = 10.0
        low: float = 2.0
        idle: float = 1.0
        linger_us: int = 1000

        def __post_init__(self) -> None:
            if min(self.normal, self.low, self.idle) < 1 or self.normal + self.low + self.idle > 50:
                raise ValueError("the floors normal, low and idle must be at least 1 and together at most 50 percent")
            if not 1 <= self.linger_us <= 10_000_000:
                raise ValueError(f"linger_us is {self.linger_us}; it must be 1 to 10000000")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self._asked = Asked()

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """The rows with the first tenant, then one reflex each."""
        self._asked.forget(tenant)
        floors = {name: round(10 * getattr(self.params, name)) for name in ("normal", "low", "idle")}
        for row in rows(now, floors, self.params.linger_us, "strict: lower classes wait while higher ones are active"):
            yield from self._asked.row(row)
        view = now.tenant(tenant)
        if view is not None and now.lane_of(view) == "spatial" and rank(view) < RANKS["high"]:
            yield from self._asked.put(view, Reflex(tenant, 0, f"class {view.klass or 'normal'} waits for higher ones"))

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """It is forgotten; the rows stay."""
        self._asked.forget(tenant)
        return ()
