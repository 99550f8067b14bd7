# SPDX-License-Identifier: Apache-2.0
"""The lane of MPS without a split: kernels of all tenants at once, placed block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.sim.gpu import EPS, Gpu, slowdown
from detshare.ctl.sim.tenants import Run, Tenant

__all__ = ["Mps"]

MOST: Final = 1000
"""ends of blocks in one go: whoever drives the lane looks from time to time whether time goes on"""


_Cohort = tuple[float, int, float]
"""Blocks of one kernel that were placed together and end together: when, on the kernel's clock; how many on each SM;
and their pull, what all of them get of the kernel beside the pull of its other blocks: 1 or more."""


@dataclass(slots=True)
class _Kernel:
    """The kernel of a tenant that is on the SMs or waits for them.

    Its clock shows what a block of weight 1 has done, microseconds of an SM: it stands while no block has a slot. So
    the end of each block is known when it is placed, whatever the others do.
    """

    tenant: Tenant
    run: Run
    work: float
    """of its run"""
    blocks: int
    unplaced: int
    led: bool = False
    """its first block to end was placed"""
    cohorts: list[_Cohort] = field(default_factory=list)
    clock: float = 0.0
    first: float = math.inf
    """when the first of its cohorts ends"""
    slots: int = 0
    pull: float = 0.0
    """of its cohorts together"""

    def place(self, slots: int, us: float, weight: float) -> None:
        """Blocks with so much work, together."""
        pull = slots * weight
        end = self.clock + us / pull
        self.cohorts.append((end, slots, pull))
        if end < self.first:
            self.first = end
        self.slots += slots
        self.pull += pull

    def expire(self) -> None:
        """Without the blocks that have ended."""
        clock, before = self.clock, self.cohorts
        if len(before) == 1 and (self.first - clock) * self.pull <= EPS:  # as nearly always
            before.clear()
            self.first, self.slots, self.pull = math.inf, 0, 0.0
            return
        self.cohorts, self.first, self.slots, self.pull = [], math.inf, 0, 0.0
        for each in before:
            end, slots, pull = each
            if (end - clock) * pull > EPS:
                self.cohorts.append(each)
                if end < self.first:
                    self.first = end
                self.slots += slots
                self.pull += pull


class Mps:
    """Blocks are placed as slots free up, the kernel that was launched first before the others.

    Blocks of one kernel that are placed together end together: that wave is one event, and the lane goes from one to
    the next by itself. All SMs are alike, so one stands for all. An SM does one unit of work a microsecond however many
    blocks it holds. The kernel that was launched first gets all but `Gpu.young` of it, the others that together. A
    kernel's blocks do not end together: the first on each SM ends when the kernel has been alone for `Gpu.first_end` of
    its time. Where a tenant's blocks are not known, each tenant runs at its measured slowdown instead, or at an equal
    part where nothing was measured.
    """

    name = "mps"

    def __init__(self, gpu: Gpu, seed: int = 0) -> None:
        self._gpu = gpu
        self._slots, self._young, self._sms = gpu.slots, gpu.young, gpu.sms
        self._leads: dict[int, float] = {}
        self._kernels: dict[str, _Kernel] = {}
        """by tenant, in the order in which they were launched"""
        self._lone: Tenant | None = None
        self.events = 0
        """moments at which something changed, so far"""
        self.works = False
        """somebody had work the last time that it went on"""

    def go(self, now: float, until: float, tenants: Sequence[Tenant]) -> float:
        """Let the tenants run up to a moment, or up to the end of the first run of any: that moment."""
        active = [tenant for tenant in tenants if tenant.queue]
        self.events += 1
        self.works = bool(active)
        if not active:
            self._kernels.clear()
            self._lone = None
            return until
        for tenant in active:
            if not tenant.blocks:
                return self._fluid(now, until, active)
        kernels = self._kernels
        for name in [name for name, kernel in kernels.items() if not kernel.tenant.queue]:
            del kernels[name]
        lone = active[0] if len(active) == 1 else None
        launch, ended = True, False
        for _ in range(MOST):
            if launch:
                if lone is not None:
                    kernel = kernels.get(lone.name)
                    if kernel is None or kernel.run is not lone.queue[0]:
                        return self._alone(now, until, lone)
                self._launch(active)
                launch = False
            rest = until - now
            passed, parts, each_slot = self._shares(rest)
            for kernel, part in parts:
                run, done = kernel.run, part * passed
                kernel.tenant.progress(now, passed, part, each_slot * kernel.slots)
                kernel.clock += done / kernel.pull
                if kernel.first - kernel.clock <= EPS:  # or less, by the pull of the blocks
                    kernel.expire()
                    if not kernel.slots and not kernel.unplaced:
                        run.done = min(kernel.work, round(run.done / run.us) * run.us)
                        del kernels[kernel.tenant.name]
                        launch = True
                if kernel.work - run.done <= EPS:
                    ended = True
            now = until if passed >= rest else now + passed
            if ended or now >= until:
                break
            self.events += 1
        return now

    def _fluid(self, now: float, until: float, active: Sequence[Tenant]) -> float:
        self._kernels.clear()
        self._lone = None
        rates = []
        for tenant in active:
            known = all(other is tenant or other.name in tenant.slowed for other in active)
            rate = 1.0 / (slowdown(tenant, active) if known else float(len(active)))
            until = min(until, now + (tenant.queue[0].work - tenant.queue[0].done) / rate)
            rates.append(rate)
        for tenant, rate in zip(active, rates, strict=True):
            tenant.progress(now, until - now, rate, self._gpu.sms / len(active))
        return until

    def _alone(self, now: float, until: float, tenant: Tenant) -> float:
        """It has the GPU for itself: one kernel after the other needs no looking at."""
        self._kernels.clear()
        self._lone = tenant
        run = tenant.queue[0]
        until = min(until, now + (run.work - run.done))
        tenant.progress(now, until - now, 1.0, float(self._gpu.sms))
        return until

    def _launch(self, active: Sequence[Tenant]) -> None:
        """A kernel for each tenant that has none."""
        lone, self._lone = self._lone, None
        if lone is not None and lone.queue and lone.queue[0].done > 0:
            self._adopt(lone)
        kernels = self._kernels
        for tenant in active:
            kernel, run = kernels.get(tenant.name), tenant.queue[0]
            if kernel is None or kernel.run is not run:
                self._begin(tenant)

    def _begin(self, tenant: Tenant) -> _Kernel:
        blocks, run = min(tenant.blocks, self._slots), tenant.queue[0]
        kernel = _Kernel(tenant, run, run.work, blocks, blocks)
        self._kernels.pop(tenant.name, None)
        self._kernels[tenant.name] = kernel
        return kernel

    def _adopt(self, tenant: Tenant) -> None:
        """The kernel in flight of a tenant that was alone has all its blocks on the SMs."""
        kernel, run = self._begin(tenant), tenant.queue[0]
        kernel.unplaced, kernel.led = 0, True
        phase = run.phase
        left = run.us - phase
        first = run.us / kernel.blocks * (1 - phase / (run.us * self._gpu.first_end))
        if kernel.blocks > 1 and first > EPS:
            kernel.place(1, first, self._lead(kernel.blocks))
            left -= first
        kernel.place(max(1, kernel.blocks - 1), left, 1.0)

    def _lead(self, blocks: int) -> float:
        """The weight with which one of so many equal blocks ends at `first_end` of their time."""
        found = self._leads.get(blocks)
        if found is None:
            found = self._leads[blocks] = (blocks - 1) / (blocks * self._gpu.first_end - 1)
        return found

    def _place(self, kernel: _Kernel, free: int) -> int:
        """As many of its blocks as there are slots; what is left of these."""
        take = kernel.unplaced if kernel.unplaced < free else free
        free -= take
        block = kernel.run.us / kernel.blocks
        kernel.unplaced -= take
        if kernel.blocks > 1 and not kernel.led:
            kernel.led = True
            kernel.place(1, block, self._lead(kernel.blocks))
            take -= 1
        if take:
            kernel.place(take, block * take, 1.0)
        return free

    def _shares(self, longest: float) -> tuple[float, list[tuple[_Kernel, float]], float]:
        """Until blocks or a run end, or so long; the kernels that have blocks on the SMs, with the part of each SM that
        each gets; and how many SMs one block on each stands for."""
        kernels = list(self._kernels.values())
        used = 0
        for kernel in kernels:
            used += kernel.slots
        if used < self._slots:
            free = self._slots - used
            for kernel in kernels:
                if kernel.unplaced:
                    free = self._place(kernel, free)
                    if not free:
                        break
            used = self._slots - free
        others = 0  # slots of all but the oldest
        parts: list[tuple[_Kernel, float]] = []
        for kernel in kernels:
            slots = kernel.slots
            if slots:
                if parts:
                    part = self._young * slots / others
                else:
                    others = used - slots
                    part = 1.0 - self._young if others else 1.0
                parts.append((kernel, part))
                left = (kernel.first - kernel.clock) * kernel.pull
                rest = kernel.work - kernel.run.done  # less, where its tenant ran on without blocks for a while
                left = (left if left < rest else rest) / part
                if left < longest:
                    longest = left
        return longest, parts, self._sms / used

    def preempt(self, tenant: Tenant, now: float) -> bool:
        """No turns to end."""
        return False
