# SPDX-License-Identifier: Apache-2.0
"""Rows of classes in the temporal lane: who waits while a higher rank is active, and what it gets all the same.

Rules as in docs/how/module-scheduling.md, without the time that a gate takes. A floor is paid at the end of each
period of 100 ms, alone: the module lets it run beside the others with a slice that gives it as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detshare.ctl.policy.types import ClassRow
from detshare.ctl.sim.tenants import RANKS, Tenant

__all__ = ["Rows"]

PERIOD_US: Final = 100_000.0
SLACK_US: Final = 1000.0
"""for the switches that paying costs"""


@dataclass
class _Row:
    rank: int = 0
    linger_us: float = 1000.0
    floor: float = 0.0


@dataclass
class _Account:
    """Of a tenant, in this period."""

    worked: float
    """when the period began"""
    active_us: float = -math.inf
    """when it was active last"""


class Rows:
    """Of one GPU. `ranked`: some class has a rank; else nobody is held."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self._tenants = tenants
        self._rows: dict[str, _Row] = {}
        self.ranked = False
        self._accounts = {tenant.name: _Account(0.0) for tenant in tenants}
        self._end = 0.0
        self._payee = ""
        """who is let go for its floor: one after the other, for switches between them would eat it up"""

    def write(self, row: ClassRow) -> str | None:
        """None, or why not."""
        if row.klass not in RANKS or not row.klass:
            return f"there is no class {row.klass!r}"
        if row.rank and row.klass != "high" and (row.floor_permille or 0) < 10:
            return "a row with a rank needs a floor of 10 permille, except for class high"
        kept = self._rows.setdefault(row.klass, _Row())
        kept.rank = kept.rank if row.rank is None else row.rank
        kept.linger_us = kept.linger_us if row.linger_us is None else float(row.linger_us)
        kept.floor = kept.floor if row.floor_permille is None else row.floor_permille / 1000
        self.ranked = any(each.rank for each in self._rows.values())
        for tenant in self._tenants:
            if tenant.klass == row.klass:
                tenant.slice_us = tenant.slice_us if row.slice_us is None else float(row.slice_us)
                tenant.level = tenant.level if row.level is None else row.level
            if not self.ranked:
                tenant.held = False
        return None

    def look(self, now: float) -> float:
        """Hold and let go; when to look again if nothing else happens."""
        if now >= self._end - 1e-6:
            self._end = (math.floor(now / PERIOD_US + 1e-9) + 1) * PERIOD_US
            for tenant in self._tenants:
                self._accounts[tenant.name].worked = tenant.worked
        again, top = self._end, 0
        for tenant in self._tenants:
            row, account = self._row(tenant), self._accounts[tenant.name]
            if tenant.queue and tenant.gate_open:
                account.active_us = now
            if row.rank and now < account.active_us + row.linger_us:
                top = max(top, row.rank)
                if not tenant.queue:
                    again = min(again, account.active_us + row.linger_us)
        owed = {}
        for tenant in self._tenants:
            row, account = self._row(tenant), self._accounts[tenant.name]
            if tenant.queue and tenant.gate_open and 0 < row.rank < top:
                debt = row.floor * PERIOD_US - (tenant.worked - account.worked)
                if debt > 1.0:
                    owed[tenant.name] = debt
        pay_from = self._end - sum(debt + SLACK_US for debt in owed.values())
        paying = bool(owed) and now >= pay_from - 1e-6
        if not paying:
            self._payee = ""
        elif self._payee not in owed:
            self._payee = max(owed, key=lambda name: owed[name])
        for tenant in self._tenants:
            rank = self._row(tenant).rank
            tenant.held = bool(rank) and (tenant.name != self._payee if paying else rank < top)
        if paying:
            return min(again, now + owed[self._payee])
        return min(again, pay_from) if owed else again

    def _row(self, tenant: Tenant) -> _Row:
        return self._rows.get(tenant.klass, _NONE)


_NONE: Final = _Row()
