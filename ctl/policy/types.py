# SPDX-License-Identifier: Apache-2.0
"""What a policy sees and what it may ask for, whoever runs it: the simulator or a daemon.

A policy is a class with some of the hooks of `Policy`. Each hook gets a snapshot that it cannot change and returns
actions; an action on a tenant that is not there, or beyond the GPU, is refused and counted, never half done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Action", "Bind", "Gate", "Policy", "Preempt", "Reflex", "Slice", "Snapshot", "TenantView"]


@dataclass(frozen=True, slots=True)
class TenantView:
    """One tenant at one moment. Times in microseconds."""

    name: str
    klass: str
    """high, normal or low"""
    sms: int
    """SM quota"""
    slice_us: float
    level: int
    """0 low, 1 medium, 2 high"""
    gate_open: bool
    active: bool
    """has work that is not finished"""
    queued: int
    """runs that wait or run"""
    in_flight_us: float
    """age of the oldest unfinished run, 0 without one"""
    kind: str
    """of the run at the head: "prefill", "decode", "kernels", "" without one"""
    launches: int
    """kernels finished so far"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One GPU at one moment."""

    now_us: float
    lane: str
    """temporal, spatial or mps"""
    sms: int
    tenants: tuple[TenantView, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a tenant a quota of SMs; counts from its next kernel on (spatial lane)."""

    tenant: str
    sms: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Set a tenant's time slice and level (temporal lane)."""

    tenant: str
    slice_us: float
    level: int = 1


@dataclass(frozen=True, slots=True)
class Gate:
    """Open or close a tenant's gate: at the next kernel boundary (spatial lane), at once (temporal lane)."""

    tenant: str
    open: bool


@dataclass(frozen=True, slots=True)
class Preempt:
    """End the tenant's time slice now (temporal lane)."""

    tenant: str


@dataclass(frozen=True, slots=True)
class Reflex:
    """While a tenant of a higher class is active: this quota of SMs, 0 to hold; None: no reflex (spatial lane)."""

    tenant: str
    busy_sms: int | None


Action = Bind | Slice | Gate | Preempt | Reflex


class Policy:
    """Hooks that do nothing. ``tick_us``: simulated or real time between two ticks, 0 for none."""

    tick_us: float = 0.0

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A tenant came."""
        return ()

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """An idle tenant got work, or a server began another step. Never once per kernel."""
        return ()

    def on_completion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A run of a tenant ended."""
        return ()

    def on_congestion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """The oldest run of a tenant has waited longer than its limit."""
        return ()

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """``tick_us`` passed."""
        return ()

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A tenant went."""
        return ()
