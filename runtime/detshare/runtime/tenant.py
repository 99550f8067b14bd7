# SPDX-License-Identifier: Apache-2.0
"""One tenant of the spatial lane, as the daemon holds it, as others see it, and what it still has to acknowledge."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Slot, monotonic_ns
from detshare.runtime.crowding import Share
from detshare.runtime.descriptors import Descriptors
from detshare.runtime.directory import Pages, Record
from detshare.runtime.reflexes import Reflex
from detshare.runtime.residence import Residence
from detshare.runtime.tiers import Table, Tier


class Tell(Protocol):
    """Takes an event: its kind, the PID it is about, and a text."""

    def __call__(self, kind: str, pid: int | None, text: str) -> None: ...


class Refused(Exception):
    """A library gets no board, and why; its program runs without."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class Tenant:
    """One program on one GPU."""

    record: Record
    pages: Pages
    slot: Slot
    pidfd: int
    table: Table
    reflex: Reflex | None = None
    lost: str = ""
    """why its context is gone, where its MPS server ended under it"""
    descriptors: Descriptors | None = None
    """of a program in the spatial lane: what keeps its GPU memory when it is killed"""
    share: Share = field(default_factory=Share)
    """of the time in which it is active"""
    crowded: bool = False
    """higher classes leave it hardly any time"""
    job: bool = False
    """a rank of a job: its collectives are counted"""
    park: Residence = field(default_factory=Residence)
    """where its memory is to be, and what was seen of it"""


def spatial(tenants: Iterable[Tenant]) -> list[Tenant]:
    """Those of the spatial lane; the others are only watched."""
    return [tenant for tenant in tenants if not tenant.record.observed]


@dataclass(frozen=True, slots=True)
class View:
    """A tenant as others see it; the counters are what the program itself says."""

    record: Record
    idle: Tier
    busy: Tier
    hold: bool
    """whether it holds, rather than moves, while a higher class is active"""
    held: bool
    """held by hand"""
    waiting: bool
    """a higher class is active now, or it is held by hand"""
    epoch: int
    counters: dict[str, int | list[int]]
    lost: str
    wants_bytes: int = 0
    """GPU memory that it waits for"""
    idle_s: float = 0.0
    """since its last launch"""
    home_s: float = 0.0
    """since its memory is on the GPU"""


def view(tenant: Tenant) -> View:
    """How it stands now."""
    policy, table, now = tenant.pages.policy.read(), tenant.table.tiers, monotonic_ns()
    return View(
        record=tenant.record,
        idle=table[policy.tier_idle],
        busy=table[policy.tier_busy],
        hold=policy.mode_busy == layout.MODE_HOLD,
        held=tenant.slot.held,
        waiting=bool(tenant.slot.get("word")),
        epoch=tenant.pages.policy.epoch,
        counters=tenant.pages.counters.read(),
        lost=tenant.lost,
        wants_bytes=wants(tenant, now),
        idle_s=idle_s(tenant, now),
        home_s=(now - tenant.park.home_ns) / 1e9 if tenant.park.home_ns else 0.0,
    )


def wants(tenant: Tenant, now_ns: int) -> int:
    """Bytes of the GPU that it waits for: of its allocations, and its parked memory; none while it is to stay away."""
    if max(tenant.park.stay_until, tenant.park.moves_until) > now_ns:
        return 0
    counters = tenant.pages.counters
    waits = counters.get("park_state") == layout.PARK_WAITING
    return counters.get("room_bytes") + (counters.get("parked_bytes") if waits else 0)


def idle_s(tenant: Tenant, now_ns: int) -> float:
    """Seconds since its last launch, as far as the daemon saw it; 0 while it has work."""
    if tenant.slot.get("active"):
        return 0.0
    since = max(tenant.pages.counters.get("last_launch"), tenant.park.home_ns)
    return max(0.0, (now_ns - since) / 1e9) if since else 0.0


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that a program has not acknowledged yet."""

    tenant: Tenant
    epoch: int

    def done(self) -> bool:
        """Whether no older work of the program contradicts the change any more; also where the program ended."""
        try:
            ack = self.tenant.pages.counters.get("epoch_ack")
        except ValueError:  # its pages are closed
            return True
        return (ack - self.epoch) & 0xFFFFFFFF < 1 << 31


def wait(pending: Iterable[Pending], seconds: float) -> list[Tenant]:
    """Wait until changes are acknowledged; those that were not within `seconds`."""
    until = time.monotonic() + seconds
    left = list(pending)
    while left := [each for each in left if not each.done()]:
        if time.monotonic() >= until:
            break
        time.sleep(0.0002)
    return [each.tenant for each in left]
