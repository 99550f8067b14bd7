# SPDX-License-Identifier: Apache-2.0
"""When a request will be done: its age, those who may be on the GPU before it, and what it took so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from detshare.ctl.policy.types import Snapshot, TenantView

__all__ = ["SWITCH_US", "Predictor"]

HISTORY: Final = 32
"""requests of a tenant whose times are kept"""
SWITCH_US: Final = 210.0
"""loading another context on an H100: docs/results, weights"""


class Predictor:
    """Of all tenants of one policy object."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}
        self._began: dict[str, float] = {}

    def forget(self, tenant: str) -> None:
        """It came anew, or went."""
        self._times.pop(tenant, None)
        self._began.pop(tenant, None)

    def began(self, now: Snapshot, view: TenantView) -> None:
        """It got work."""
        self._began[view.name] = now.now_us - view.in_flight_us

    def ended(self, now: Snapshot, tenant: str) -> None:
        """Its work ended: one more time for its history, unless looks are all that tell, which are too seldom."""
        began = self._began.pop(tenant, None)
        if began is not None and (now.rows or now.lane != "temporal"):
            self._times.setdefault(tenant, deque(maxlen=HISTORY)).append(now.now_us - began)

    def predicted(self, now: Snapshot, view: TenantView) -> float:
        """When its request will be done, in microseconds from its begin on."""
        times = sorted(self._times.get(view.name, ()))
        own = view.request_p50_us or (times[len(times) // 2] if times else 0.0)
        return view.in_flight_us + sum(wait for _, wait in self.blockers(now, view)) + own

    @staticmethod
    def blockers(now: Snapshot, view: TenantView) -> Iterator[tuple[TenantView, float]]:
        """Who may be on the GPU before it, and for how many microseconds."""
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
