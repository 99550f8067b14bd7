# SPDX-License-Identifier: Apache-2.0
"""``slo-aware``: the class rule, and a way through for who would miss its deadline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from detshare.ctl.policy.shipped.asked import Asked, rank
from detshare.ctl.policy.types import Action, Bind, Policy, Preempt, Reflex, Slice, Snapshot, TenantView

__all__ = ["SloAware"]

HISTORY: Final = 32
"""requests of a tenant whose times are kept"""
SWITCH_US: Final = 210.0
"""loading another context on an H100: docs/results, weights"""


class SloAware(Policy):
    """Rule: classes stand as docs/classes.md has them until a tenant with a deadline is predicted to miss it.

    Predicted is the age of its request, plus what the others may hold the GPU (temporal lane: a slice and a switch
    each; spatial lane: the rest of a kernel whose grid leaves no SM free, by the p90 of its shape), plus its own
    median time so far. If that is beyond `margin` of the deadline, whoever has more time left makes way: its slice
    ends and is short from then on, or it is held, or bound to a quarter of the SMs if its class is equal. A tenant
    without a deadline counts as late only when the backend says that it is congested. When nobody was at risk for
    `calm_ms`, everybody gets back what it had.

    Source: the default policy of the DetShare paper (arXiv 2603.15042) in words; predictor and figures are ours.
    Limits: a deadline is of one request, not of a stream; times are learned, so the first requests are not protected;
    a tenant of a higher class is never pushed aside, and two that are both late are left to the class rule.
    """

    tick_us = 100_000.0

    @dataclass(frozen=True)
    class Params:
        """margin: part of the deadline that may be used up; squeeze_us: slice of who makes way."""

        margin: float = 0.8
        squeeze_us: float = 200.0
        calm_ms: float = 1000.0
        pause_ms: float = 5.0
        """at most one preemption of a tenant in so long: each costs a call of the driver"""

        def __post_init__(self) -> None:
            if not 0 < self.margin <= 1:
                raise ValueError(f"margin is {self.margin:g}; it must be above 0 and at most 1")
            if self.squeeze_us < 20 or self.calm_ms < 0 or self.pause_ms < 0:
                raise ValueError("squeeze_us must be at least 20, calm_ms and pause_ms at least 0")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self._asked = Asked()
        self._times: dict[str, deque[float]] = {}
        self._began: dict[str, float] = {}
        self._preempted: dict[str, float] = {}
        self._risk_us = 0.0
        """when somebody was at risk last"""

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Its history begins, or ends."""
        self._asked.forget(tenant)
        for kept in (self._times, self._began, self._preempted):
            kept.pop(tenant, None)
        return ()

    on_detach = on_attach

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Would it be late?"""
        view = now.tenant(tenant)
        if view is None:
            return
        self._began[tenant] = now.now_us - view.in_flight_us
        if view.deadline_us is not None and self._predicted(now, view) > self.params.margin * view.deadline_us:
            yield from self._make_way(now, view)

    def on_completion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """One more time for its history."""
        began = self._began.pop(tenant, None)
        if began is not None:
            self._times.setdefault(tenant, deque(maxlen=HISTORY)).append(now.now_us - began)
        return ()

    def on_congestion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """It is late already."""
        view = now.tenant(tenant)
        return () if view is None else self._make_way(now, view)

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """Is it over?"""
        for view in now.tenants:
            late = view.deadline_us is not None and view.in_flight_us > self.params.margin * view.deadline_us
            if view.active and late:
                yield from self._make_way(now, view)
        if self._asked.changed and now.now_us - self._risk_us >= self.params.calm_ms * 1000:
            for view in now.tenants:
                yield from self._asked.back(view, f"nobody was at risk for {self.params.calm_ms:g} ms")

    def _predicted(self, now: Snapshot, view: TenantView) -> float:
        """When its request will be done, from its begin on."""
        times = sorted(self._times.get(view.name, ()))
        own = times[len(times) // 2] if times else 0.0
        return view.in_flight_us + sum(wait for _, wait in self._blockers(now, view)) + own

    def _blockers(self, now: Snapshot, view: TenantView) -> Iterator[tuple[TenantView, float]]:
        """Who may be on the GPU before it, and for how long."""
        lane = now.lane_of(view)
        if lane == "mps":  # there is nothing to do about it
            return
        for other in now.tenants:
            if other.name == view.name or not other.active or not other.gate_open or now.lane_of(other) != lane:
                continue
            if lane == "temporal":
                yield other, other.slice_us + SWITCH_US
            elif other.blocks >= now.sms:
                shape = next((each for each in other.shapes if each.blocks == other.blocks), None)
                if shape is not None:
                    yield other, max(0.0, shape.p90_us - other.in_flight_us) if other.queued <= 1 else shape.p90_us

    def _make_way(self, now: Snapshot, view: TenantView) -> Iterator[Action]:
        self._risk_us = now.now_us
        for other, wait in list(self._blockers(now, view)):
            hurried = view.deadline_us is not None and self._left(other) > self._left(view)
            if rank(other) > rank(view) or (rank(other) == rank(view) and not hurried):
                continue
            why = f"{view.name} would be late: {other.name} may hold the GPU for {wait / 1000:.1f} ms"
            if now.lane_of(other) == "temporal":
                squeezed = min(self.params.squeeze_us, other.slice_us)
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
