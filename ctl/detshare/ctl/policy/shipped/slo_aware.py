# SPDX-License-Identifier: Apache-2.0
"""``slo-aware``: the class rule, a p99 that is held, and a way through for who would miss its deadline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core.classes import CLASSES, MOST_FLOOR
from detshare.ctl.policy.shipped.asked import Asked, rank
from detshare.ctl.policy.shipped.background import Background, reading
from detshare.ctl.policy.shipped.predictor import SWITCH_US, Predictor
from detshare.ctl.policy.shipped.room import MakesRoom
from detshare.ctl.policy.types import Action, Bind, Preempt, Reflex, Slice, Snapshot, TenantView

__all__ = ["SloAware"]

TOGETHER_US: Final = 1000.0
"""slice of several who make way: shorter ones would be used up by switches between them"""


class SloAware(MakesRoom):
    """Rule: classes stand as docs/use/scheduling.md has them until a stated time is missed, or predicted to be missed.

    Stated is a deadline (`policy deadline`), else `slo_ms` for class `slo_class`. Of who tells how long its requests
    take, the p99 is held there: above it the floor of classes low and idle is halved from window to window, down to 0,
    and then idle is paused; below `margin` of it the floor grows, up to `most_floor` percent (governor.py).

    Of who has a deadline a miss is predicted: the age of its request, plus what the others may hold the GPU (temporal
    lane: a slice and a switch each; spatial lane: the rest of a kernel whose grid leaves no SM free, by the p90 of its
    shape), plus its own median time. If that is beyond `margin` of the deadline, whoever has more time left makes way:
    its slice ends and is short from then on, or it is held, or bound to a quarter of the SMs if its class is equal. A
    tenant without a deadline counts as late only when the backend says that it is congested. When nobody was at risk
    for `calm_ms`, everybody gets back what it had. When GPU memory is full `when_full` says who makes room (room.py).

    Source: the default policy of the DetShare paper (arXiv 2603.15042) in words; predictor, control and figures ours.
    Limits: times are learned, so the first requests are not protected. A tenant of a higher class is never pushed
    aside; two that are both late are left to the class rule. A p99 that is missed alone on the GPU, too, costs the
    background its floor for nothing.
    """

    tick_us = 100_000.0
    kicks = "deadlines"
    lacks = {
        "requests": "nobody knows how long requests take (tenant(...).observe, daemon.launches): no p99 is held",
        "floors": "nobody rotates the background here: of what holds a p99 only the pause of class idle is left",
        "rows": "without detshare.ko nobody sees requests begin and end: own times are those that programs report",
    }

    @dataclass(frozen=True)
    class Params(MakesRoom.Params):
        """margin: part of the time stated that may be used up; squeeze_us: slice of who makes way."""

        slo_ms: float = 0.0
        """for who has no deadline of its own; 0: none"""
        slo_class: str = "high"
        most_floor: int = 20
        margin: float = 0.8
        squeeze_us: float = 200.0
        calm_ms: float = 1000.0
        pause_ms: float = 5.0
        """at most one preemption of a tenant in so long: each costs a call of the driver"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 0 < self.margin <= 1:
                raise ValueError(f"margin is {self.margin:g}; it must be above 0 and at most 1")
            if self.slo_ms < 0 or self.slo_class not in CLASSES or not 0 <= self.most_floor <= 100 * MOST_FLOOR:
                raise ValueError(f"slo_ms must be at least 0, slo_class a class, most_floor 0 to {100 * MOST_FLOOR:g}")
            if self.squeeze_us < 20 or self.calm_ms < 0 or self.pause_ms < 0:
                raise ValueError("squeeze_us must be at least 20, calm_ms and pause_ms at least 0")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self.looks = self.ticks = "always" if self.params.slo_ms else "deadlines"
        self._asked, self._predictor = Asked(), Predictor()
        self._background = Background(self.params.most_floor, self.params.margin)
        self._preempted: dict[str, float] = {}
        self._risk_us = 0.0
        """when somebody was at risk last"""

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Its history begins, or ends."""
        for each in (self._asked, self._predictor, self._background):
            each.forget(tenant)
        self._preempted.pop(tenant, None)
        return ()

    on_detach = on_attach

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Would it be late?"""
        view = now.tenant(tenant)
        if view is None:
            return
        self._predictor.began(now, view)
        if view.deadline_us and self._predictor.predicted(now, view) > self.params.margin * view.deadline_us:
            yield from self._make_way(now, view)

    def on_completion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """One more time for its history."""
        self._predictor.ended(now, tenant)
        return ()

    def on_congestion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """It is late already."""
        view = now.tenant(tenant)
        return () if view is None else self._make_way(now, view)

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """Is it over? Are stated times held?"""
        for view in now.tenants:
            if view.active and view.deadline_us and view.in_flight_us > self.params.margin * view.deadline_us:
                yield from self._make_way(now, view)
        if self._asked.changed and now.now_us - self._risk_us >= self.params.calm_ms * 1000:
            for view in now.tenants:
                yield from self._asked.back(view, f"nobody was at risk for {self.params.calm_ms:g} ms")
        told = [reading(each, goal) for each in now.tenants if (goal := self._goal(each))]
        yield from self._background.look(now, [each for each in told if each is not None])

    def _goal(self, view: TenantView) -> float:  # microseconds; 0: none is stated
        return view.deadline_us or (1000 * self.params.slo_ms if view.klass == self.params.slo_class else 0.0)

    def _make_way(self, now: Snapshot, view: TenantView) -> Iterator[Action]:
        self._risk_us = now.now_us
        blockers = list(self._predictor.blockers(now, view))
        short = self.params.squeeze_us if len(blockers) == 1 else max(TOGETHER_US, self.params.squeeze_us)
        for other, wait in blockers:
            hurried = view.deadline_us is not None and self._left(other) > self._left(view)
            if rank(other) > rank(view) or (rank(other) == rank(view) and not hurried):
                continue
            why = f"{view.name} would be late: {other.name} may hold the GPU for {wait / 1000:.1f} ms"
            if now.lane_of(other) == "temporal":
                squeezed = min(short, other.slice_us)
                yield from self._asked.put(other, Slice(other.name, squeezed, 0, why))
                paused = now.now_us - self._preempted.get(other.name, -1e12) < self.params.pause_ms * 1000
                if wait > squeezed + SWITCH_US and not paused and "Preempt" not in other.by_hand:
                    self._preempted[other.name] = now.now_us
                    yield Preempt(other.name, why)
            elif rank(other) < rank(view):
                yield from self._asked.put(other, Reflex(other.name, 0, why))
            else:
                yield from self._asked.put(other, Bind(other.name, max(1, now.sms // 4), why))

    @staticmethod
    def _left(view: TenantView) -> float:
        """Until its deadline; without one there is no hurry."""
        return float("inf") if view.deadline_us is None else view.deadline_us - view.in_flight_us
