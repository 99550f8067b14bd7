# SPDX-License-Identifier: Apache-2.0
"""``fair``: GPU time and SMs in proportion to weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core.classes import MOST_FLOOR
from detshare.ctl.policy.shipped.apportioning import Correction, apportion
from detshare.ctl.policy.shipped.asked import RANKS, Asked, fitting, rank
from detshare.ctl.policy.types import Action, Bind, ClassRow, Move, Policy, Slice, Snapshot, TenantView

__all__ = ["Fair"]

MOST_SLICE_US: Final = 1_000_000.0


class Fair(Policy):
    """Rule: who works gets its weight divided by the weights of all who work.

    A tenant's weight is what was set for it (set-weight), else that of its class. Temporal lane: slices of `unit_ms` x
    weight on one level, all scaled so that the smallest is at least `shortest_us`; a tenant at rest costs nobody a
    turn. Who has a class by hand keeps it and what follows from it; where the background takes turns
    the floors of the classes are then their parts of all weights, so that higher ones leave them so much. Spatial lane:
    the SMs are divided among the active tenants, to the last SM, as members of the pool where they fit and as quotas
    else; so an idle tenant's SMs go to the others (work-conserving).

    Who rests in mid-slice gives the rest of it away, so slices are corrected every two seconds by the GPU time that
    each tenant had, up to twice and half of what its weight says: those of all who worked for the whole time.

    Source: weighted fair queueing on slices, as time-slicing with unequal slices gives it (docs/how/class-numbers.md);
    apportionment by largest remainders (Hamilton).
    Limits: exact between tenants that always have work; who wants less than its part is taken for one that is behind,
    and has longer slices than it uses. Switches (0.2 ms) cost all alike. A tenant with several contexts has several
    turns: give it a weight by `set-weight`, which divides by their number. In the pool a member below the exact share
    is taken: what is left over stays idle. A floor is at most 50 percent, and in gaps of higher classes the background
    has more than its part.
    """

    lacks = {"floors": "nobody rotates the background here: who has a class by hand is left to the class rule"}

    @dataclass(frozen=True)
    class Params:
        """Weights of the classes."""

        high: float = 8.0
        normal: float = 4.0
        low: float = 1.0
        idle: float = 1.0
        unit_ms: float = 1.0
        shortest_us: float = 1000.0

        def __post_init__(self) -> None:
            if min(self.high, self.normal, self.low, self.idle) <= 0:
                raise ValueError("the weights high, normal, low and idle must be above 0")
            if max(self.high, self.normal, self.low, self.idle) > 1000 * min(
                self.high, self.normal, self.low, self.idle
            ):
                raise ValueError("the largest weight of a class is more than 1000 times the smallest")
            if not 0.02 <= self.unit_ms <= 100 or not 20 <= self.shortest_us <= 100_000:
                raise ValueError("unit_ms must be 0.02 to 100, shortest_us 20 to 100000")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self._asked = Asked()
        self._floors: dict[str, dict[str, int]] = {}
        """GPU -> class -> permille"""
        self._correction = Correction()

    tick_us = 2_000_000.0

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """Does everybody get its part?"""
        working = {each.name: each for each in now.tenants if each.active and now.lane_of(each) == "temporal"}
        weights = {name: self._weight(each) for name, each in working.items()}
        return self._divide(now) if self._correction.look(now.gpu, working, weights) else ()

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A new division."""
        self._forget(tenant)
        return self._divide(now)

    def _forget(self, tenant: str) -> None:
        self._asked.forget(tenant)
        self._correction.forget(tenant)

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """The others have its part."""
        self._forget(tenant)
        return self._divide(now)

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Who was at rest wants its part again."""
        return self._spaces(now)

    def on_completion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Who is at rest needs none."""
        return self._spaces(now)

    def _divide(self, now: Snapshot) -> Iterator[Action]:
        timed = [each for each in now.tenants if now.lane_of(each) == "temporal"]
        if timed:
            unit = self.params.unit_ms * 1000
            smallest = min(map(self._weight, timed)) * unit
            unit *= max(1.0, self.params.shortest_us / smallest)
            for view in timed:
                weight = self._weight(view)
                factor = self._correction.factor(view.name)
                slice_us = float(round(min(MOST_SLICE_US, unit * weight * factor)))
                why = f"weight {weight:g}" + (f", {factor:.2f} times for what it had" if factor != 1 else "")
                yield from self._asked.put(view, Slice(view.name, slice_us, 1, why))
            if now.floors and not now.rows:
                yield from self._rows(now, timed)
        yield from self._spaces(now)

    def _rows(self, now: Snapshot, timed: Sequence[TenantView]) -> Iterator[Action]:
        """Floors of the classes below the highest that is here, where somebody has one by hand."""
        classed = [each for each in timed if each.klass in RANKS and "Slice" in each.by_hand]
        whole = sum(map(self._weight, timed))
        top = max(map(rank, classed), default=0)
        self._floors[now.gpu] = floors = dict.fromkeys((each.klass for each in classed if rank(each) < top), 0)
        for klass in floors:
            part = sum(self._weight(each) for each in classed if each.klass == klass) / whole
            floors[klass] = min(round(1000 * part), round(1000 * MOST_FLOOR))
        for klass in sorted({name for each in self._floors.values() for name in each}):
            most = max(each.get(klass, 0) for each in self._floors.values())
            yield from self._asked.row(ClassRow(klass, floor_permille=most, reason=f"{most / 10:g} % of all weights"))

    def _spaces(self, now: Snapshot) -> Iterator[Action]:
        wanting = [each for each in now.tenants if each.active and now.lane_of(each) == "spatial"]
        weights = [self._weight(each) for each in wanting]
        taken: set[str] = set()
        for view, sms in zip(wanting, apportion(weights, now.sms), strict=True):
            why = f"weight {self._weight(view):g} of {sum(weights):g}: {sms} of {now.sms} SMs"
            member = fitting(now, view, sms, taken)
            if member is not None and "Bind" not in view.by_hand:
                taken.add(member.name)
                yield from self._asked.put(view, Move(view.name, member.name, why))
            elif sms:
                yield from self._asked.put(view, Bind(view.name, sms, why))

    def _weight(self, view: TenantView) -> float:
        return view.weight if view.weight else float(getattr(self.params, view.klass, self.params.normal))
