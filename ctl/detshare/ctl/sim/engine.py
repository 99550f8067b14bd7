# SPDX-License-Identifier: Apache-2.0
"""One GPU and its tenants in simulated time.

Between two events every rate is constant, so a run of equal kernels is advanced at once, however many kernels it has:
the cost of a simulation goes with its events, not with its kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from detshare.ctl.policy.types import PCtx, Policy, Snapshot, TenantView
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import EPS, Gpu, Lane, Spatial, Temporal
from detshare.ctl.sim.history import GRAPH
from detshare.ctl.sim.memory import GIB, Memory
from detshare.ctl.sim.mps import Mps
from detshare.ctl.sim.policies import AT_ONCE, Pace, Reins
from detshare.ctl.sim.rows import Rows
from detshare.ctl.sim.tenants import Run, Tenant

__all__ = ["LANES", "Engine"]

LANES: Final[dict[str, Callable[[Gpu, int], Lane | Mps]]] = {"temporal": Temporal, "spatial": Spatial, "mps": Mps}
MOST_STUCK: Final = 10_000
"""events within a microsecond: more is a source or a policy that does not let time go on"""


class Engine:
    """Runs tenants on one GPU in one lane, under a policy or none. Times in microseconds, from 0."""

    def __init__(
        self,
        gpu: Gpu,
        lane: str,
        tenants: Iterable[Tenant],
        policy: Policy | None = None,
        *,
        seed: int = 0,
        pace: Pace = AT_ONCE,
        pool: Iterable[PCtx] = (),
        hour: float = 0.0,
    ) -> None:
        if lane not in LANES:
            raise SimError(f"lane {lane!r} is none: use one of {', '.join(LANES)}")
        self.gpu = gpu
        self.lane = LANES[lane](gpu, seed)
        self._spatial = isinstance(self.lane, Spatial)
        self.tenants = tuple(tenants)
        names = [tenant.name for tenant in self.tenants]
        if len(set(names)) != len(names):
            raise SimError(f"two tenants have one name among {names}; give each its own")
        for tenant in self.tenants:
            if not 0 <= tenant.sms <= gpu.sms:
                raise SimError(f"tenant {tenant.name} asks for {tenant.sms} SMs of a GPU with {gpu.sms}")
        self.now = 0.0
        self.events = 0
        self.busy = 0.0
        """microseconds in which some kernel ran"""
        self.waited = 0.0
        """microseconds in which there was work, no gate was shut, and nothing ran: context switches only"""
        self.pool = {each.name: each for each in pool}
        self.rows = Rows(self.tenants)
        self._hour = hour
        """of the day, at the begin"""
        self.reins = Reins(policy, self, pace) if policy is not None else None
        self.memory: Memory | None = None
        """None: no tenant has any"""
        if any(tenant.memory_gib for tenant in self.tenants):
            if isinstance(self.lane, Mps):
                raise SimError("under MPS nobody's memory can leave: use the temporal or the spatial lane")
            self.memory = Memory(gpu, self.tenants, self._press)
        self._attached = False

    def snapshot(self) -> Snapshot:
        """What a policy sees now."""
        views = tuple(map(self._view, self.tenants))
        hour = (self._hour + self.now / 3.6e9) % 24.0
        return Snapshot(self.now, self.lane.name, self.gpu.sms, views, "", hour, tuple(self.pool.values()))

    def _view(self, tenant: Tenant) -> TenantView:
        head = tenant.queue[0] if tenant.queue else None
        return TenantView(
            tenant.name,
            tenant.klass,
            tenant.sms or self.gpu.sms,
            tenant.slice_us,
            tenant.level,
            tenant.gate_open,
            head is not None,
            len(tenant.queue),
            self.now - head.asked if head else 0.0,
            head.kind if head else "",
            tenant.launches + (math.floor(head.done / head.us + 1e-9) if head else 0),
            pctx=tenant.pctx,
            standing_sms=tenant.sms or None,
            reflex_sms=tenant.reflex,
            weight=tenant.weight,
            deadline_us=tenant.deadline_us,
            graph_launches=tenant.graphs,
            blocks=head.blocks if head else 0,
            used_us=tenant.sm_us / self.gpu.sms if self._spatial else tenant.worked,
            shapes=tenant.history.shapes(),
            group=tenant.group,
            residence=tenant.residence if tenant.memory_gib else "",
            parkable_bytes=int(tenant.memory_gib * GIB),
            wants_bytes=self.memory.wants(tenant) if self.memory is not None else 0,
            idle_us=0.0 if head is not None and tenant.may_run else self.now - tenant.worked_at,
            home_us=self.now - tenant.home_at if tenant.residence == "home" else 0.0,
            copy_us=2e6 * tenant.memory_gib / self.gpu.bus_gib_s if tenant.parked else 0.0,
        )

    def _press(self, tenant: Tenant) -> None:
        if self.reins:
            self.reins.pressed(tenant)

    def run(self, until: float) -> None:
        """Simulate up to this moment; may be called again with a later one."""
        if self.reins and not self._attached:
            self._attached = True
            for tenant in self.tenants:
                self.reins.attach(tenant)
        since, moment = self.events, self.now
        while self.now < until:
            self._step(until)
            if self.now >= moment + 1.0:
                since, moment = self.events, self.now
            elif self.events - since > MOST_STUCK:
                raise SimError(f"time stands still at {self.now:.3f} us: a source or the policy asks for more at once")

    def _step(self, until: float) -> None:
        self.events += 1
        horizon, now = until, self.now
        for tenant in self.tenants:
            if tenant.wake <= now:
                self._poll(tenant)
            if tenant.wake < horizon:
                horizon = tenant.wake
        if self.reins:
            horizon = min(horizon, self.reins.due(self.now))
        if self.memory is not None:
            horizon = min(horizon, self.memory.look(self.now))
        if self.rows.turned:
            horizon = min(horizon, self.rows.look(self.now))
        if isinstance(self.lane, Mps):
            self._go(self.lane, horizon)
            return
        plan = self.lane.plan(self.now, self.tenants)
        horizon = min(horizon, plan.until)
        for tenant, rate in zip(self.tenants, plan.rates, strict=True):
            if rate > 0:
                horizon = min(horizon, self.now + (tenant.queue[0].work - tenant.queue[0].done) / rate)
        passed = max(0.0, horizon - self.now)
        self._advance(passed, plan.rates, plan.sms)
        self.now = max(self.now, horizon)
        self.lane.advanced(passed, self.tenants)
        self._complete()

    def _go(self, lane: Mps, until: float) -> None:
        """As far as the lane comes by itself."""
        events, now = lane.events, self.now
        moment = lane.go(now, until if until > now else now, self.tenants)
        self.events += lane.events - events - 1
        if lane.works:
            self.busy += moment - now
        self.now = moment
        self._complete()

    def _poll(self, tenant: Tenant) -> None:
        while True:
            found = tenant.source.poll(self.now)
            if not isinstance(found, Run):
                tenant.wake = max(found, self.now) if found > self.now else math.nextafter(self.now, math.inf)
                return
            was_idle = not tenant.queue
            tenant.queue.append(found)
            tenant.graphs += found.graph
            if self.reins and (was_idle or found.kind != "kernels"):
                self.reins.launched(tenant, was_idle)

    def _advance(self, passed: float, rates: Sequence[float], sms: Sequence[float]) -> None:
        ran = waiting = False
        for tenant, rate, used in zip(self.tenants, rates, sms, strict=True):
            waiting = waiting or (bool(tenant.queue) and tenant.may_run)
            if rate <= 0:
                continue
            ran = True
            tenant.progress(self.now, passed, rate, used)
            if self._spatial:
                tenant.over_quota = max(tenant.over_quota, used - tenant.tier)
        if ran:
            self.busy += passed
        elif waiting:
            self.waited += passed

    def _complete(self) -> None:
        for tenant in self.tenants:
            while tenant.queue:
                run = tenant.queue[0]
                if run.kernels * run.us - run.done > EPS:
                    break
                tenant.queue.popleft()
                tenant.launches += run.kernels
                tenant.source.finished(run, self.now)
                tenant.wake = self.now
                for other in self.tenants:
                    if other.name == tenant.partner:
                        other.wake = self.now
                if self.reins:
                    took = (self.now - run.began) / (1 if run.graph else run.kernels)
                    tenant.history.add(GRAPH if run.graph else "", run.blocks, took, 1 if run.graph else run.kernels)
                    self.reins.completed(tenant)

    def launches(self) -> int:
        """Kernels finished so far, those of unfinished runs too."""
        return sum(view.launches for view in map(self._view, self.tenants))

    def rate(self, tenant: Tenant) -> float:
        """Work a second, in seconds alone: 1 is what the tenant does alone."""
        return tenant.worked / self.now if self.now else 0.0
