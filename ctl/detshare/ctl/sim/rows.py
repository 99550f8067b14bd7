# SPDX-License-Identifier: Apache-2.0
"""Rows of classes in the temporal lane: who waits while a higher class has the turns, and what it gets all the same.

Rules as in docs/how/module-scheduling.md, once a row gives a class turns. Those of one class are all on at once here:
their slices rule among them. A floor is paid at the end of each period of 100 ms, and alone.
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


LINGER_US: Final = 1000.0
"""who has nothing to do for so long wants no turn"""
FEW: Final = 0.05
"""of a period: with smaller gaps the foreground leaves none"""


@dataclass
class _Row:
    turns: bool = False
    floor: float = 0.0


@dataclass
class _Account:
    """Of a tenant, in this period."""

    worked: float
    """when the period began"""
    active_us: float = -math.inf
    """when it was active last"""


class Rows:
    """Of one GPU. `turned`: some class was given turns; else nobody is held."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self._tenants = tenants
        self._rows: dict[str, _Row] = {}
        self.turned = False
        self._accounts = {tenant.name: _Account(0.0) for tenant in tenants}
        self._end = 0.0
        self._payee = ""
        """who is let go for its floor: one after the other, for switches between them would eat it up"""
        self._looked, self._gaps, self._busy, self._full = 0.0, 0.0, False, False
        """the foreground: what it left in this period, whether it works, whether it left next to nothing in the last"""

    def write(self, row: ClassRow) -> str | None:
        """None, or why not."""
        if row.klass not in RANKS or not row.klass:
            return f"there is no class {row.klass!r}"
        if row.turn_us and row.klass != "high" and (row.floor_permille or 0) < 10:
            return "a row with turns needs a floor of 10 permille, except for class high"
        kept = self._rows.setdefault(row.klass, _Row())
        kept.turns = kept.turns if row.turn_us is None else row.turn_us > 0
        kept.floor = kept.floor if row.floor_permille is None else row.floor_permille / 1000
        self.turned = any(each.turns for each in self._rows.values())
        for tenant in self._tenants:
            if tenant.klass == row.klass:
                tenant.slice_us = tenant.slice_us if row.slice_us is None else float(row.slice_us)
                tenant.level = tenant.level if row.level is None else row.level
            if not self.turned:
                tenant.held = False
        return None

    def look(self, now: float) -> float:
        """Hold and let go; when to look again if nothing else happens."""
        self._measure(now)
        if now >= self._end - 1e-6:
            self._begin(now)
        again, top = self._end, min(RANKS.values()) - 1
        for tenant in self._tenants:
            account = self._accounts[tenant.name]
            if tenant.queue and tenant.gate_open:
                account.active_us = now
            if self._row(tenant).turns and now < account.active_us + LINGER_US:
                top = max(top, tenant.rank)
                if not tenant.queue:
                    again = min(again, account.active_us + LINGER_US)
        closed = self._full and self._busy
        waiting = {each.name for each in self._tenants if self._row(each).turns and (closed or each.rank < top)}
        owed = {}
        for tenant in self._tenants:
            if tenant.name in waiting and tenant.queue and tenant.gate_open:
                worked = tenant.worked - self._accounts[tenant.name].worked
                debt = self._row(tenant).floor * PERIOD_US - worked
                if debt > 1.0:
                    owed[tenant.name] = debt
        pay_from = self._end - sum(debt + SLACK_US for debt in owed.values())
        paying = bool(owed) and now >= pay_from - 1e-6
        if not paying:
            self._payee = ""
        elif self._payee not in owed:
            self._payee = max(owed, key=lambda name: owed[name])
        for tenant in self._tenants:
            takes_part = self._row(tenant).turns or self._is_foreground(tenant)
            tenant.held = (takes_part and tenant.name != self._payee) if paying else tenant.name in waiting
        if paying:
            return min(again, now + owed[self._payee])
        return min(again, pay_from) if owed else again

    def _is_foreground(self, tenant: Tenant) -> bool:
        least = min((RANKS[klass] for klass, row in self._rows.items() if row.turns), default=0)
        return not self._row(tenant).turns and bool(tenant.klass) and tenant.rank > least

    def _measure(self, now: float) -> None:
        """The foreground's gaps until now; a window that is being paid is none."""
        if not self._busy and not self._payee:
            self._gaps += now - self._looked
        self._looked = now
        self._busy = any(each.queue and each.gate_open for each in self._tenants if self._is_foreground(each))

    def _begin(self, now: float) -> None:
        whole = self._end > 0
        self._end = (math.floor(now / PERIOD_US + 1e-9) + 1) * PERIOD_US
        self._full, self._gaps = whole and self._gaps < FEW * PERIOD_US, 0.0
        for tenant in self._tenants:
            self._accounts[tenant.name].worked = tenant.worked

    def _row(self, tenant: Tenant) -> _Row:
        return self._rows.get(tenant.klass, _NONE)


_NONE: Final = _Row()
