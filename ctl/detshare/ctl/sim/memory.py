# SPDX-License-Identifier: Apache-2.0
"""GPU memory in the simulator: whose is on the GPU, who waits for room, and what the bus copies.

Times in microseconds. As libdetshare.so does it (docs/how/park.md), in short: a tenant's memory is on the GPU as a
whole or not at all, one copy at a time has the bus, and who was parked for somebody comes back after that one. Left
out: what a park waits for (the end of what runs), what copies take of the GPU's own bandwidth, and host memory that is
full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.tenants import Tenant

__all__ = ["LOOK_US", "Memory"]

LOOK_US: Final = 250_000.0
"""how often a policy hears of somebody who waits: as often as a daemon looks"""
FIRST_US: Final = 30e6
"""the longest that a room is somebody's who has not taken it"""
GIB: Final = 1 << 30


class Memory:
    """Of one GPU. `press` tells a policy that a tenant waits. SimError where one is larger than the GPU."""

    def __init__(self, gpu: Gpu, tenants: Sequence[Tenant], press: Callable[[Tenant], None]) -> None:
        self._gpu, self._tenants, self._press = gpu, tenants, press
        self._first: tuple[Tenant, float] | None = None
        self._bus_free = self._look_due = 0.0
        self.copied_us = 0.0
        """time in which the bus copied"""
        self.parks = 0
        free = gpu.memory_gib
        for tenant in tenants:
            if tenant.memory_gib > gpu.memory_gib:
                stopped = f"tenant {tenant.name} has {tenant.memory_gib:g} GiB"
                raise SimError(f"{stopped}, and the GPU {gpu.memory_gib:g}: it fits on none")
            if tenant.memory_gib <= free:
                free -= tenant.memory_gib
            else:
                tenant.residence = "parked"  # it has nothing yet that would be copied

    def wants(self, tenant: Tenant) -> int:
        """Bytes that it waits for."""
        return int(tenant.memory_gib * GIB) if tenant.queue and tenant.residence == "parked" else 0

    def look(self, now: float) -> float:
        """What ended, who comes back, who waits; the moment of the next look."""
        for tenant in self._tenants:
            if tenant.moved_at <= now and tenant.residence == "leaving":
                tenant.residence = "parked"
            elif tenant.moved_at <= now and tenant.residence == "coming":
                tenant.residence, tenant.home_at = "home", now
        if self._first is not None and (self._first[0].residence == "home" or now >= self._first[1]):
            self._first = None
        first = None if self._first is None else self._first[0]
        for tenant in self._tenants:
            if self.wants(tenant) and first in (None, tenant) and tenant.memory_gib <= self._free:
                self._come(tenant, now)
        waiting = [tenant for tenant in self._tenants if self.wants(tenant) and first in (None, tenant)]
        if waiting and now >= self._look_due:
            self._look_due = now + LOOK_US
            for tenant in waiting:
                self._press(tenant)
        moving = [each.moved_at for each in self._tenants if each.residence in ("leaving", "coming")]
        due = [*moving, *([self._look_due] if waiting else []), *([self._first[1]] if self._first else [])]
        return max(min(due, default=math.inf), math.nextafter(now, math.inf))

    @property
    def _free(self) -> float:
        return self._gpu.memory_gib - sum(t.memory_gib for t in self._tenants if t.residence != "parked")

    def _copy(self, tenant: Tenant, now: float) -> float:
        """When the bus has copied it."""
        took = tenant.memory_gib / self._gpu.bus_gib_s * 1e6
        self._bus_free = max(now, self._bus_free) + took
        self.copied_us += took
        return self._bus_free

    def _come(self, tenant: Tenant, now: float) -> None:
        tenant.residence = "coming"
        tenant.moved_at = self._copy(tenant, now) if tenant.parked else now

    def park(self, tenant: Tenant, room_for: str, now: float) -> str | None:
        """Begin to copy it away. None, or why not."""
        claimant = next((each for each in self._tenants if each.name == room_for), None)
        if claimant is None or not self.wants(claimant):
            return f"{room_for} waits for no memory"
        if tenant.residence != "home" or not tenant.memory_gib:
            return "its memory is not on the GPU"
        tenant.residence, tenant.parked = "leaving", True
        tenant.moved_at = self._copy(tenant, now)
        self._first = claimant, now + FIRST_US
        self.parks += 1
        return None
