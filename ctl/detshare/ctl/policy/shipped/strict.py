# SPDX-License-Identifier: Apache-2.0
"""``strict``: the class above takes the GPU, those below have their floor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from detshare.ctl.core.classes import TURN_US
from detshare.ctl.policy.shipped.asked import RANKS, Asked, rank
from detshare.ctl.policy.shipped.room import MakesRoom
from detshare.ctl.policy.types import Action, ClassRow, Reflex, Snapshot

__all__ = ["Strict", "rows"]


def rows(now: Snapshot, floors: dict[str, int], reason: str) -> list[ClassRow]:
    """Turns, which go by class, and the permille of the time that a class has in any case; without detshare.ko these
    alone, for there every class below the highest has turns already."""
    if not now.rows and not now.floors:
        return []
    turn_us = TURN_US if now.rows else None
    return [ClassRow(klass, floor_permille=floor, turn_us=turn_us, reason=reason) for klass, floor in floors.items()]


class Strict(MakesRoom):
    """Rule: a class that has work takes the GPU from those below it, but for their floors.

    Temporal lane: normal, low and idle have turns, once; of those that want the GPU the highest have them all, and the
    mechanism gives the others their floors in whole windows. Class high is the foreground above them: they run in gaps
    of its that are worth a switch, and have their floors where it leaves none. Without detshare.ko turns go by class
    already, and this sets their floors. Spatial lane: each tenant below class high gets a reflex that holds it, once.
    Nothing is decided per launch. When GPU memory is full `when_full` says who makes room (room.py).

    Source: fixed-priority preemptive scheduling; turns and floors are those of docs/how/module-scheduling.md.
    Limits: tenants of class normal have the GPU one at a time. A window of 10 ms is the longest that a higher class
    waits for a lower one's floor.
    """

    lacks = {"floors": "nobody rotates the background here: the class rule stands, and nothing else"}

    @dataclass(frozen=True)
    class Params(MakesRoom.Params):
        """Floors in percent of the time."""

        normal: float = 10.0
        low: float = 2.0
        idle: float = 1.0

        def __post_init__(self) -> None:
            super().__post_init__()
            if min(self.normal, self.low, self.idle) < 1 or self.normal + self.low + self.idle > 50:
                raise ValueError("the floors normal, low and idle must be at least 1 and together at most 50 percent")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self._asked = Asked()

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """The rows with the first tenant, then one reflex each."""
        self._asked.forget(tenant)
        floors = {name: round(10 * getattr(self.params, name)) for name in ("normal", "low", "idle")}
        for row in rows(now, floors, "strict: the class above takes the GPU"):
            yield from self._asked.row(row)
        view = now.tenant(tenant)
        if view is not None and now.lane_of(view) == "spatial" and rank(view) < RANKS["high"]:
            yield from self._asked.put(view, Reflex(tenant, 0, f"class {view.klass or 'normal'} waits for higher ones"))

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """It is forgotten; the rows stay."""
        self._asked.forget(tenant)
        return ()
