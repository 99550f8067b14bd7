# SPDX-License-Identifier: Apache-2.0
"""What a policy has asked for so far: nothing is asked twice, nothing against a person, and all can be given back."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from detshare.ctl.policy.types import (
    Action,
    Bind,
    ClassRow,
    Gate,
    Move,
    PCtx,
    Reflex,
    Slice,
    Snapshot,
    TenantView,
)

__all__ = ["RANKS", "Asked", "fitting", "rank"]

RANKS: Final = {"idle": -1, "low": 0, "normal": 1, "high": 2}

_Lasting = Slice | Reflex | Gate | Bind | Move
_KINDS: Final = {Slice: "Slice", Reflex: "Reflex", Gate: "Gate", Bind: "Bind", Move: "Bind"}
"""Bind and Move both say on which SMs a tenant runs: the later one counts"""


def rank(tenant: TenantView) -> int:
    """Of its class, higher goes first; a tenant without one of the four classes counts as normal."""
    return RANKS.get(tenant.klass, RANKS["normal"])


def fitting(now: Snapshot, tenant: TenantView, sms: float, taken: set[str]) -> PCtx | None:
    """The largest member of the pool of at most ``sms`` SMs that the tenant may have; None where there is none.

    ``taken``: exclusive members that the same decision has given away already.
    """
    free = [
        each
        for each in now.pool
        if each.sms <= sms and not (each.exclusive and ({*each.bound} - {tenant.name} or each.name in taken))
    ]
    return max(free, key=lambda each: (each.sms, each.name == tenant.pctx), default=None)


class Asked:
    """One for each policy object."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], _Lasting] = {}
        self._before: dict[tuple[str, str], tuple[str, _Lasting | None]] = {}
        self._rows: dict[str, ClassRow] = {}

    def put(self, tenant: TenantView, action: _Lasting) -> list[Action]:
        """The action, if it changes something and no person has decided otherwise."""
        kind = _KINDS[type(action)]
        if kind in tenant.by_hand or type(action).__name__ in tenant.by_hand:
            return []
        key, plain = (tenant.name, kind), replace(action, reason="")
        stands = self._stands(tenant, kind)
        if key in self._before and self._before[key][0] != tenant.klass:
            del self._before[key]  # a class was given since, and what it sets stands now
            self._last.pop(key, None)
        if self._last.get(key, stands) == plain:
            return []
        self._before.setdefault(key, (tenant.klass, stands))
        self._last[key] = plain
        return [action]

    def back(self, tenant: TenantView, reason: str) -> list[Action]:
        """What the tenant had before the policy changed it; nothing where it did not, or a class was given since."""
        found: list[Action] = []
        for kind in ("Slice", "Reflex", "Gate", "Bind"):
            last = self._last.pop((tenant.name, kind), None)
            klass, before = self._before.pop((tenant.name, kind), ("", None))
            if before is not None and last != before and klass == tenant.klass and kind not in tenant.by_hand:
                found.append(replace(before, reason=reason))
        return found

    def row(self, row: ClassRow) -> list[Action]:
        """The row, if it was not written yet."""
        plain = replace(row, reason="")
        if self._rows.get(row.klass) == plain:
            return []
        self._rows[row.klass] = plain
        return [row]

    def slice_us(self, tenant: TenantView) -> float:
        """The slice that it has without the policy."""
        klass, before = self._before.get((tenant.name, "Slice"), ("", None))
        return before.slice_us if isinstance(before, Slice) and klass == tenant.klass else tenant.slice_us

    def renew(self, tenant: str, kind: str) -> None:
        """What was asked last may have run out by itself, as a gate's lease does: ask again where it is needed."""
        self._last.pop((tenant, kind), None)

    def forget(self, tenant: str) -> None:
        """It came anew, or went."""
        for key in [key for key in self._last if key[0] == tenant]:
            self._last.pop(key)
            self._before.pop(key, None)

    @property
    def changed(self) -> set[str]:
        """Tenants for which something is in force that the policy asked for."""
        return {name for name, _ in self._last}

    @staticmethod
    def _stands(tenant: TenantView, kind: str) -> _Lasting | None:
        match kind:
            case "Slice":
                return Slice(tenant.name, tenant.slice_us, tenant.level)
            case "Reflex":
                return Reflex(tenant.name, tenant.reflex_sms)
            case "Gate":
                return Gate(tenant.name, tenant.gate_open)
        if tenant.pctx:
            return Move(tenant.name, tenant.pctx)
        return Bind(tenant.name, tenant.standing_sms or tenant.sms)
