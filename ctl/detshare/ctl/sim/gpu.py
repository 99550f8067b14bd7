# SPDX-License-Identifier: Apache-2.0
"""What a GPU is to the model, and its three lanes: who progresses how fast until when."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from detshare.ctl.backends.model.timeline import build_round
from detshare.ctl.sim.tenants import Tenant

__all__ = ["EPS", "Gpu", "Lane", "Plan", "Spatial", "Temporal", "slowdown"]

NEVER: Final = math.inf
EPS: Final = 1e-3
"""microseconds that count as nothing: beyond the resolution of a double at an hour, below that of the hardware"""


@dataclass(frozen=True)
class Gpu:
    """One GPU; figures of an H100."""

    sms: int = 132
    switch_us: float = 200.0
    """loading another context"""
    slots: int = 8
    """blocks of 256 threads that one SM holds"""
    young: float = 0.2
    """MPS: what kernels get of an SM beside one that was launched before them"""
    first_end: float = 0.82
    """MPS: part of a full kernel's time after which the first of its blocks on an SM ends; above 1 / `slots`"""
    memory_gib: float = 80.0
    bus_gib_s: float = 48.0
    """between GPU and host, one way: 8 GiB went in 0.164 and came in 0.178 s (measured on an H200, handles made too)"""


@dataclass
class Plan:
    """Speed of each tenant (1: as alone on all SMs) and the SMs it uses, valid until ``until``."""

    rates: list[float]
    sms: list[float]
    until: float = NEVER


class Lane(Protocol):
    """One way to share a GPU."""

    name: str

    def plan(self, now: float, tenants: Sequence[Tenant]) -> Plan:
        """From now on, if nothing else happens."""

    def advanced(self, seconds: float, tenants: Sequence[Tenant]) -> None:
        """The plan was in force for so many microseconds; runs that ended are still at the head of their queues."""

    def preempt(self, tenant: Tenant, now: float) -> bool:
        """End the tenant's turn; False where the lane has no turns."""


class Temporal:
    """One context at a time: slices, levels, and a switch between two."""

    name = "temporal"

    def __init__(self, gpu: Gpu, seed: int = 0) -> None:
        self._gpu = gpu
        self._random = random.Random(seed)
        self._loaded: Tenant | None = None
        self._position = -1
        self._switch_end = 0.0
        self._slice_end = 0.0
        self._alone = False
        """nobody else had work at the last look"""
        self._shape: tuple[tuple[str, int], ...] = ()
        self._round: list[Tenant] = []
        self.switches = 0

    def plan(self, now: float, tenants: Sequence[Tenant]) -> Plan:
        """The loaded tenant runs until its slice ends or its work does; the next in the round follows."""
        shape = tuple((tenant.name, tenant.level) for tenant in tenants)
        if shape != self._shape:
            self._shape, self._round = shape, build_round(tenants)
            self._position = self._round.index(self._loaded) if self._loaded in self._round else -1
        plan = Plan([0.0] * len(tenants), [0.0] * len(tenants))
        ready = [tenant for tenant in tenants if tenant.queue and tenant.may_run]
        if not ready:
            return plan
        loaded = self._loaded
        if now < self._switch_end - EPS:
            plan.until = self._switch_end
            return plan
        ended = now >= self._slice_end - EPS
        if ended and self._alone and loaded in ready:
            # Slice followed slice while nobody waited, each pause of the program's own began a new one: where in a
            # slice it is now, nobody knows.
            self._slice_end = now + max(1.0, self._random.random() * self._slice_us(loaded))
            ended = False
        self._alone = len(ready) == 1
        if loaded is None or loaded not in ready or (ended and not self._alone):
            loaded = self._turn(now, ready)
            if now < self._switch_end - EPS:
                plan.until = self._switch_end
                return plan
        index = next(index for index, tenant in enumerate(tenants) if tenant is loaded)
        plan.rates[index], plan.sms[index] = 1.0, float(self._gpu.sms)
        if len(ready) > 1:
            plan.until = self._slice_end
        return plan

    @staticmethod
    def _slice_us(tenant: Tenant | None) -> float:
        return max(1.0, tenant.slice_us if tenant is not None else 0.0)

    def _turn(self, now: float, ready: Sequence[Tenant]) -> Tenant:
        for step in range(1, len(self._round) + 1):
            position = (self._position + step) % len(self._round)
            chosen = self._round[position]
            if chosen in ready:
                break
        self._position = position
        begin = now
        if chosen is not self._loaded:
            if self._loaded is not None:
                begin = now + self._gpu.switch_us
                self.switches += 1
            self._loaded, self._switch_end = chosen, begin
        self._slice_end = begin + self._slice_us(chosen)
        return chosen

    def advanced(self, seconds: float, tenants: Sequence[Tenant]) -> None:
        """Nothing to keep."""

    def preempt(self, tenant: Tenant, now: float) -> bool:
        """Its slice ends now."""
        if self._loaded is tenant and now >= self._switch_end:
            self._slice_end = now
        return True


class Spatial:
    """All at once, each on its quota of SMs; a quota changes at a kernel's end, a quota of 0 holds."""

    name = "spatial"

    def __init__(self, gpu: Gpu, seed: int = 0) -> None:
        self._gpu = gpu

    def wanted(self, tenant: Tenant, tenants: Sequence[Tenant]) -> float:
        """The quota that the tenant's next kernel gets."""
        if not tenant.may_run:
            return 0.0
        quota = tenant.sms or self._gpu.sms
        if tenant.reflex is not None and any(
            other.queue and other.may_run and other.rank > tenant.rank for other in tenants
        ):
            return float(min(quota, tenant.reflex))
        return float(quota)

    def plan(self, now: float, tenants: Sequence[Tenant]) -> Plan:
        """Quotas beyond the GPU are cut in proportion."""
        changing = []
        for index, tenant in enumerate(tenants):
            if not tenant.queue:
                tenant.tier = 0.0
                continue
            wanted, run = self.wanted(tenant, tenants), tenant.queue[0]
            if tenant.tier <= 0 or run.phase <= EPS or run.us - run.phase <= EPS:
                tenant.tier = wanted
            elif wanted != tenant.tier:
                changing.append(index)
        asked = sum(tenant.tier for tenant in tenants)
        cut = min(1.0, self._gpu.sms / asked) if asked else 1.0
        plan = Plan([0.0] * len(tenants), [tenant.tier * cut for tenant in tenants])
        for index, tenant in enumerate(tenants):
            if tenant.tier > 0:
                rate = tenant.speed(plan.sms[index], tenant.queue[0], self._gpu.sms)
                plan.rates[index] = rate / slowdown(tenant, [each for each in tenants if each.tier > 0])
        for index in changing:
            if plan.rates[index] > 0:
                run = tenants[index].queue[0]
                plan.until = min(plan.until, now + (run.us - run.phase) / plan.rates[index])
        return plan

    def advanced(self, seconds: float, tenants: Sequence[Tenant]) -> None:
        """Nothing to keep."""

    def preempt(self, tenant: Tenant, now: float) -> bool:
        """No turns to end."""
        return False


def slowdown(tenant: Tenant, running: Sequence[Tenant]) -> float:
    """The product of what each of the others does to it."""
    factor = 1.0
    for other in running:
        if other is not tenant:
            factor *= tenant.slowed.get(other.name, 1.0)
    return factor
