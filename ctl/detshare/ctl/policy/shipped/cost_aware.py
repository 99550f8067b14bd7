# SPDX-License-Identifier: Apache-2.0
"""``cost-aware``: latency while it is dear, throughput while it is cheap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core.classes import CLASSES, MOST_FLOOR
from detshare.ctl.policy.shipped.asked import RANKS, Asked, rank
from detshare.ctl.policy.shipped.background import USUAL
from detshare.ctl.policy.shipped.strict import rows
from detshare.ctl.policy.types import Action, ClassRow, Policy, Reflex, Slice, Snapshot, TenantView

__all__ = ["CostAware"]

NORMAL: Final = 20
"""floor of class normal in permille where the daemon rotates it (docs/use/scheduling.md)"""


class CostAware(Policy):
    """Rule: by the hour. In the peak the class rule stands; off-peak the background gets long slices.

    Off-peak (outside `peak_from` to `peak_to`, local time) the classes low and idle have slices of `slice_ms` on the
    middle level, so that fewer switches are paid for, and `cheap_floor` percent of the time whatever higher classes
    want (idle half of it); a tenant with a deadline that is active ends that for as long as it works and `calm_s` more.
    Without detshare.ko the floors alone are set: slices are those of the turns. Flagged (`strict=true`) the peak is
    strict: turns for the classes and reflexes that hold, as policy strict has them, with floors of 10, 2 and 1 %.

    Source: the cost-aware policy that the DetShare paper names; tariffs by hour as in electricity and spot prices.
    Limits: the hour is the machine's; a price is not looked up anywhere. Off-peak class low delays others by up to
    `slice_ms`, without detshare.ko by windows of its floor.
    """

    lacks = {
        "rows": "slices of classes are not changed without detshare.ko: off-peak the background has its floor instead",
        "floors": "nobody rotates the background here: tenants whose class was set by hand stay as they are",
    }

    tick_us = 1_000_000.0

    @dataclass(frozen=True)
    class Params:
        """Hours of the day, 0 to 24; from above to means over midnight."""

        peak_from: float = 8.0
        peak_to: float = 20.0
        slice_ms: float = 5.0
        calm_s: float = 10.0
        cheap_floor: int = 25
        strict: bool = False

        def __post_init__(self) -> None:
            if not (0 <= self.peak_from <= 24 and 0 <= self.peak_to <= 24):
                raise ValueError("peak_from and peak_to must be hours from 0 to 24")
            if not 0.05 <= self.slice_ms <= 1000 or self.calm_s < 0:
                raise ValueError("slice_ms must be 0.05 to 1000, calm_s at least 0")
            if not 2 <= self.cheap_floor <= 100 * MOST_FLOOR:
                raise ValueError(f"cheap_floor is {self.cheap_floor}; it must be 2 to {100 * MOST_FLOOR:g} percent")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self._asked = Asked()
        self._mode = "plain"
        """plain, cheap or strict; the class rule is plain"""
        self._hurried_us = -1e18
        """when a tenant with a deadline was active last"""

    def peak(self, hour: float) -> bool:
        """Is it dear?"""
        begin, end = float(self.params.peak_from), float(self.params.peak_to)
        return begin <= hour < end if begin <= end else hour >= begin or hour < end

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """It gets what the hour says."""
        self._asked.forget(tenant)
        return self._by_hour(now)

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A deadline ends what is cheap."""
        view = now.tenant(tenant)
        return self._by_hour(now) if view is not None and view.deadline_us is not None else ()

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """The hour goes on."""
        return self._by_hour(now)

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """It is forgotten."""
        self._asked.forget(tenant)
        return ()

    def _by_hour(self, now: Snapshot) -> Iterator[Action]:
        if any(each.active and each.deadline_us is not None for each in now.tenants):
            self._hurried_us = now.now_us
        peak = self.peak(now.hour)
        if peak:
            why = f"peak: {now.hour:.1f} h is between {self.params.peak_from:g} and {self.params.peak_to:g}"
        else:
            why = f"off-peak at {now.hour:.1f} h"
        cheap = not peak and now.now_us - self._hurried_us >= self.params.calm_s * 1e6
        if not peak and not cheap:
            why = f"{why}, but a tenant with a deadline is active"
        mode = "strict" if peak and self.params.strict else "cheap" if cheap else "plain"
        if mode != self._mode:
            self._mode = mode
            yield from self._rows(now, why)
        for view in now.tenants:
            yield from self._one(now, view, why)

    def _rows(self, now: Snapshot, why: str) -> Iterator[Action]:
        """Of all classes, for the mode that begins."""
        if self._mode == "strict":
            yield from rows(now, {"normal": 100, "low": 20, "idle": 10}, why)
            return
        cheap = self._mode == "cheap"
        floors = {"low": 10 * self.params.cheap_floor, "idle": 5 * self.params.cheap_floor} if cheap else USUAL
        if not now.rows:
            yield from rows(now, floors | {"normal": NORMAL}, why)
            return
        for klass in RANKS:
            stands, long = CLASSES[klass], cheap and RANKS[klass] <= RANKS["low"]
            slice_us = round(self.params.slice_ms * 1000) if long else stands.slice_us
            floor = floors.get(klass, stands.floor_permille)
            level = 1 if long else int(stands.level)
            yield ClassRow(
                klass, slice_us=slice_us, level=level, floor_permille=floor, turn_us=stands.turn_us, reason=why
            )

    def _one(self, now: Snapshot, view: TenantView, why: str) -> Iterator[Action]:
        lane = now.lane_of(view)
        if lane == "spatial":
            if self._mode == "strict" and rank(view) < RANKS["high"]:
                yield from self._asked.put(view, Reflex(view.name, 0, why))
            else:
                yield from self._asked.back(view, why)
        elif lane == "temporal" and self._mode == "cheap" and now.rows and rank(view) <= RANKS["low"]:
            yield from self._asked.put(view, Slice(view.name, self.params.slice_ms * 1000, 1, why))
        else:
            yield from self._asked.back(view, why)
