# SPDX-License-Identifier: Apache-2.0
"""The lane of MPS in its first form, slow and plain: the engine plans anew whenever a block ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from detshare.ctl.policy.types import Policy
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.gpu import EPS, Gpu, Plan, slowdown
from detshare.ctl.sim.tenants import Run, Tenant

__all__ = ["BlockByBlock"]


@dataclass(slots=True)
class _Cohort:
    """Blocks of one kernel that were placed together: so many on each SM."""

    slots: int
    left: float
    """work that all of them have left, microseconds of an SM"""
    weight: float
    """of each of them among the blocks of its kernel"""


@dataclass(slots=True)
class _Kernel:
    """The kernel of a tenant that is on the SMs or waits for them."""

    run: Run
    blocks: int
    launched: int
    unplaced: int
    led: bool = False
    """its first block to end was placed"""
    cohorts: list[_Cohort] = field(default_factory=list)


class _Mps:
    """Blocks are placed as slots free up, the kernel that was launched first before the others.

    All SMs are alike, so one stands for all. An SM does one unit of work a microsecond however many blocks it holds.
    The kernel that was launched first gets all but `Gpu.young` of it, the others that together. A kernel's blocks do
    not end together: the first on each SM ends when the kernel has been alone for `Gpu.first_end` of its time. Where a
    tenant's blocks are not known, each tenant runs at its measured slowdown instead, or at an equal part where nothing
    was measured.
    """

    name = "mps"

    def __init__(self, gpu: Gpu, seed: int = 0) -> None:
        self._gpu = gpu
        self._kernels: dict[str, _Kernel] = {}
        self._order = 0
        self._lone: Tenant | None = None
        self._rates: list[tuple[_Cohort, float]] = []

    def plan(self, now: float, tenants: Sequence[Tenant]) -> Plan:
        """Until the next block ends; a tenant that is alone needs no such look."""
        plan = Plan([0.0] * len(tenants), [0.0] * len(tenants))
        self._rates = []
        active = [(index, tenant) for index, tenant in enumerate(tenants) if tenant.queue]
        if not active:
            self._kernels.clear()
            self._lone = None
            return plan
        if any(not tenant.blocks for _, tenant in active):
            return self._fluid(active, plan)
        for name in set(self._kernels) - {tenant.name for _, tenant in active}:
            del self._kernels[name]
        if len(active) == 1:
            index, tenant = active[0]
            kernel = self._kernels.get(tenant.name)
            if kernel is None or kernel.run is not tenant.queue[0]:
                self._kernels.clear()
                self._lone = tenant
                plan.rates[index], plan.sms[index] = 1.0, float(self._gpu.sms)
                return plan
        if self._lone is not None:
            self._adopt(self._lone)
            self._lone = None
        for _, tenant in active:
            kernel = self._kernels.get(tenant.name)
            if kernel is None or kernel.run is not tenant.queue[0]:
                self._launch(tenant)
        self._place()
        return self._share(now, active, plan)

    def _fluid(self, active: Sequence[tuple[int, Tenant]], plan: Plan) -> Plan:
        self._kernels.clear()
        self._lone = None
        for index, tenant in active:
            known = all(other is tenant or other.name in tenant.slowed for _, other in active)
            factor = slowdown(tenant, [each for _, each in active]) if known else float(len(active))
            plan.rates[index], plan.sms[index] = 1.0 / factor, self._gpu.sms / len(active)
        return plan

    def _launch(self, tenant: Tenant) -> _Kernel:
        self._order += 1
        blocks = min(tenant.blocks, self._gpu.slots)
        kernel = _Kernel(tenant.queue[0], blocks, self._order, blocks)
        self._kernels[tenant.name] = kernel
        return kernel

    def _adopt(self, tenant: Tenant) -> None:
        """The kernel in flight of a tenant that was alone has all its blocks on the SMs."""
        if tenant.queue and tenant.queue[0].done > 0:
            kernel, run = self._launch(tenant), tenant.queue[0]
            kernel.unplaced, kernel.led = 0, True
            left = run.us - run.phase
            first = run.us / kernel.blocks * (1 - run.phase / (run.us * self._gpu.first_end))
            if kernel.blocks > 1 and first > EPS:
                kernel.cohorts.append(_Cohort(1, first, self._lead(kernel)))
                left -= first
                kernel.cohorts.append(_Cohort(kernel.blocks - 1, left, 1.0))
            else:
                kernel.cohorts.append(_Cohort(max(1, kernel.blocks - 1), left, 1.0))

    def _lead(self, kernel: _Kernel) -> float:
        """The weight with which one of so many equal blocks ends at `first_end` of their time."""
        return (kernel.blocks - 1) / (kernel.blocks * self._gpu.first_end - 1)

    def _place(self) -> None:
        free = self._gpu.slots - sum(cohort.slots for each in self._kernels.values() for cohort in each.cohorts)
        for kernel in sorted(self._kernels.values(), key=lambda each: each.launched):
            take = min(free, kernel.unplaced)
            if take > 0:
                block = kernel.run.us / kernel.blocks
                kernel.unplaced -= take
                free -= take
                if kernel.blocks > 1 and not kernel.led:
                    kernel.led = True
                    kernel.cohorts.append(_Cohort(1, block, self._lead(kernel)))
                    take -= 1
                if take:
                    kernel.cohorts.append(_Cohort(take, block * take, 1.0))

    def _share(self, now: float, active: Sequence[tuple[int, Tenant]], plan: Plan) -> Plan:
        placed = [kernel for kernel in self._kernels.values() if kernel.cohorts]
        oldest = min(placed, key=lambda kernel: kernel.launched)
        others = sum(cohort.slots for kernel in placed if kernel is not oldest for cohort in kernel.cohorts)
        slots = others + sum(cohort.slots for cohort in oldest.cohorts)
        self._rates = []
        for kernel in placed:
            mine = sum(cohort.slots for cohort in kernel.cohorts)
            part = 1.0 - (self._gpu.young if others else 0.0) if kernel is oldest else self._gpu.young * mine / others
            weight = sum(cohort.slots * cohort.weight for cohort in kernel.cohorts)
            self._rates += [(each, part * each.slots * each.weight / weight) for each in kernel.cohorts]
        share = {id(cohort): rate for cohort, rate in self._rates}
        for index, tenant in active:
            cohorts = self._kernels[tenant.name].cohorts
            plan.rates[index] = sum(share[id(cohort)] for cohort in cohorts)
            plan.sms[index] = self._gpu.sms * sum(cohort.slots for cohort in cohorts) / slots
        plan.until = now + min(cohort.left / rate for cohort, rate in self._rates)
        return plan

    def advanced(self, seconds: float, tenants: Sequence[Tenant]) -> None:
        """Blocks progressed; kernels without blocks have ended, and the next one of their run is launched."""
        for cohort, rate in self._rates:
            cohort.left -= rate * seconds
        for tenant in tenants:
            kernel = self._kernels.get(tenant.name)
            if kernel is None:
                continue
            kernel.cohorts = [cohort for cohort in kernel.cohorts if cohort.left > EPS]
            run = kernel.run
            if not kernel.cohorts and not kernel.unplaced:
                run.done = min(run.work, round(run.done / run.us) * run.us)
                del self._kernels[tenant.name]

    def preempt(self, tenant: Tenant, now: float) -> bool:
        """No turns to end."""
        return False


class BlockByBlock(Engine):
    """The engine over that lane."""

    def __init__(self, gpu: Gpu, tenants: Iterable[Tenant], policy: Policy | None = None) -> None:
        super().__init__(gpu, "mps", tenants, policy)
        self.lane = _Mps(gpu)
