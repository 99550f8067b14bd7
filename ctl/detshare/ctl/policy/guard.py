# SPDX-License-Identifier: Apache-2.0
"""What no policy may do, whoever wrote it: act on what is not there, fill an exclusive member twice, starve anybody.

The bounds on starvation. A gate that a policy shut opens after `LONGEST_SHUT_US` at the latest, and is not shut again
before it stood open for `LEAST_OPEN` of the time it was shut. A slice is at most `LONGEST_SLICE_US`. A class that it
gives turns keeps a floor of `LEAST_FLOOR` permille.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from detshare.ctl.core.classes import CLASSES
from detshare.ctl.policy.types import Action, Bind, ClassRow, Gate, Move, Park, Preempt, Reflex, Slice, Snapshot

__all__ = ["LEAST_FLOOR", "LEAST_OPEN", "LONGEST_SHUT_US", "LONGEST_SLICE_US", "MOST_ACTIONS", "Guard", "kind_of"]

LONGEST_SHUT_US: Final = 10_000_000.0
LEAST_OPEN: Final = 0.05
LONGEST_SLICE_US: Final = 1_000_000.0
LEAST_FLOOR: Final = 10
MOST_ACTIONS: Final = 4096
"""of one answer"""
_LONGEST_REASON: Final = 500
_KINDS: Final = (Bind, Move, Slice, Gate, Park, Preempt, Reflex, ClassRow)
_ROW: Final = {
    "weight": (1, 1000),
    "slice_us": (0, int(LONGEST_SLICE_US)),
    "level": (0, 2),
    "floor_permille": (0, 1000),
    "turn_us": (0, 1_000_000),
}


def kind_of(action: object) -> str:
    """The name of its class, as `TenantView.by_hand` has it."""
    return type(action).__name__


@dataclass(slots=True)
class _Shut:
    """A gate that a policy shut. Times as in Snapshot.now_us."""

    since: float
    opened: float | None = None


class Guard:
    """Checks the actions of one GPU, with what it let through before. Not for several threads."""

    def __init__(self) -> None:
        self._gates: dict[str, _Shut] = {}
        self._moved: dict[str, str] = {}
        """tenant -> member, let through but not seen in a snapshot yet"""
        self._turned: set[str] = set()
        self._floors: dict[str, int] = {}

    def check(self, action: object, now: Snapshot) -> str | None:
        """None: it may be done, and counts as done from now on. Else why not, in words."""
        if not isinstance(action, _KINDS):
            return f"{str(type(action).__name__)[:60]} is no action"
        problem = _wrong_type(action)
        if problem is not None:
            return problem
        if isinstance(action, ClassRow):
            return self._row(action)
        tenant = now.tenant(action.tenant)
        if tenant is None:
            return f"there is no tenant {_say(action.tenant)} on this GPU"
        if kind_of(action) in tenant.by_hand:
            return f"a person decided that for {tenant.name}; it stands until release, or: policy resume {tenant.name}"
        lane = now.lane_of(tenant)
        match action:
            case Bind(sms=sms):
                if lane != "spatial" or not 1 <= sms <= now.sms:
                    return f"needs the spatial lane and 1 to {now.sms} SMs"
            case Reflex(busy_sms=busy):
                if lane != "spatial" or (busy is not None and not 0 <= busy <= now.sms):
                    return f"needs the spatial lane and 0 to {now.sms} SMs"
            case Slice(slice_us=slice_us, level=level):
                if lane != "temporal" or not 1 <= slice_us <= LONGEST_SLICE_US or level not in (0, 1, 2):
                    return f"needs the temporal lane, 1 to {LONGEST_SLICE_US:.0f} us and a level of 0 to 2"
            case Preempt():
                if lane != "temporal":
                    return "needs the temporal lane"
            case Park(room_for=other):
                if tenant.residence != "home" or not tenant.parkable_bytes:
                    return "its memory cannot leave: none of it can, or it is not on the GPU"
                claimant = now.tenant(other)
                if claimant is None or not claimant.wants_bytes or other == action.tenant:
                    return f"{_say(other)} waits for no memory of this GPU"
            case Gate(open=is_open):
                if lane == "mps":
                    return "MPS without the runtime has no gates"
                return self._gate(action.tenant, is_open, now.now_us)
            case Move(pctx=pctx):
                if lane != "spatial":
                    return "needs the spatial lane"
                return self._move(action.tenant, pctx, now)
        return None

    def _move(self, tenant: str, pctx: str, now: Snapshot) -> str | None:
        member = now.member(pctx)
        if member is None:
            return f"there is no pool member {_say(pctx)} on this GPU"
        here = {each for each in member.bound if self._moved.get(each, pctx) == pctx}
        here |= {each for each, where in self._moved.items() if where == pctx}
        if member.exclusive and here - {tenant}:
            return f"{pctx} is exclusive and has {', '.join(sorted(here - {tenant}))}"
        self._moved[tenant] = pctx
        return None

    def _gate(self, tenant: str, is_open: bool, now_us: float) -> str | None:
        shut = self._gates.get(tenant)
        if is_open:
            if shut is not None and shut.opened is None:
                shut.opened = now_us
            return None
        if shut is None:
            self._gates[tenant] = _Shut(now_us)
            return None
        if shut.opened is None:
            return None if now_us < shut.since + LONGEST_SHUT_US else "its gate was shut for as long as it may be"
        if now_us - shut.opened < LEAST_OPEN * (shut.opened - shut.since):
            return f"its gate has to stay open for {LEAST_OPEN:.0%} of the time that it was shut"
        self._gates[tenant] = _Shut(now_us)
        return None

    def _row(self, row: ClassRow) -> str | None:
        if row.turn_us is not None:
            (self._turned.add if row.turn_us else self._turned.discard)(row.klass)
        if row.floor_permille is not None:
            self._floors[row.klass] = row.floor_permille
        standard = CLASSES.get(row.klass)
        floor = self._floors.get(row.klass, standard.floor_permille if standard else 0)
        if row.klass in self._turned and row.klass != "high" and floor < LEAST_FLOOR:
            if row.turn_us:
                self._turned.discard(row.klass)
            return f"class {row.klass} would starve: give it floor_permille={LEAST_FLOOR} or more"
        return None

    def shuts(self, tenant: str, now_us: float) -> None:
        """A policy's gate is shut; from now on, where an earlier daemon let it through."""
        self._gates.setdefault(tenant, _Shut(now_us))

    def hand(self, tenant: str, other: Guard) -> None:
        """It is on another GPU now; its gate was shut when it was."""
        shut = self._gates.pop(tenant, None)
        if shut is not None:
            other._gates.setdefault(tenant, shut)

    @property
    def waits(self) -> bool:
        """Whether there is anything to be seen in a snapshot."""
        return bool(self._moved or self._gates)

    def see(self, now: Snapshot) -> None:
        """A new snapshot: what was moved shows in it."""
        names = {tenant.name: tenant.pctx for tenant in now.tenants}
        self._moved = {name: where for name, where in self._moved.items() if name in names and names[name] != where}
        self._gates = {name: shut for name, shut in self._gates.items() if name in names}

    def overdue(self, now_us: float) -> list[str]:
        """Tenants whose gates have to open now; they count as open from here on."""
        found = [
            name for name, shut in self._gates.items() if shut.opened is None and now_us >= shut.since + LONGEST_SHUT_US
        ]
        for name in found:
            self._gates[name].opened = now_us
        return found

    def next_due(self) -> float:
        """When the first gate has to open; infinity where none is shut."""
        shut = (each.since for each in self._gates.values() if each.opened is None)
        return min(shut, default=math.inf) + LONGEST_SHUT_US

    @property
    def shut(self) -> frozenset[str]:
        """Tenants that a policy holds now."""
        return frozenset(name for name, each in self._gates.items() if each.opened is None)

    def undone(self, action: Action) -> None:
        """It was let through and could not be done."""
        if isinstance(action, Gate) and not action.open:
            self._gates.pop(action.tenant, None)
        elif isinstance(action, Move):
            self._moved.pop(action.tenant, None)


def _wrong_type(action: Action) -> str | None:
    """What a policy may have put in: dataclasses check nothing by themselves."""
    for field in fields(action):
        value = getattr(action, field.name)
        if field.name in ("tenant", "pctx", "klass", "room_for", "reason"):
            good = isinstance(value, str)
        elif field.name == "open":
            good = isinstance(value, bool)
        elif field.name == "slice_us" and isinstance(action, Slice):
            good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        elif value is None:
            good = isinstance(action, ClassRow) or field.name == "busy_sms"
        else:
            good = isinstance(value, int) and not isinstance(value, bool)
        if not good:
            return f"{field.name} is {_say(value)}"
        if field.name == "reason" and len(value) > _LONGEST_REASON:
            return f"its reason is longer than {_LONGEST_REASON} characters"
        if isinstance(action, ClassRow) and field.name in _ROW and value is not None:
            least, most = _ROW[field.name]
            if not least <= value <= most:
                return f"{field.name} is {value}; it is {least} to {most}"
    return None


def _say(value: object) -> str:
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001  a __repr__ of the policy's own
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def names(actions: Iterable[Action]) -> list[str]:
    """Whom they are about: tenants, and classes as "class NAME"."""
    return [f"class {each.klass}" if isinstance(each, ClassRow) else each.tenant for each in actions]
