# SPDX-License-Identifier: Apache-2.0
"""From actions to the verbs that people use, so that whatever holds for those holds for a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from detshare.ctl.core.classes import CLASSES
from detshare.ctl.core.snapshot import ClassInfo
from detshare.ctl.core.verbs import LEVELS
from detshare.ctl.policy.guard import LONGEST_SHUT_US
from detshare.ctl.policy.types import (
    Action,
    Bind,
    ClassRow,
    Gate,
    Move,
    Park,
    Preempt,
    Reflex,
    Slice,
    Snapshot,
    TenantView,
)

__all__ = ["Request", "before", "plain", "requests", "row", "row_back", "same", "stands", "undo"]

_LEASE_S: Final = int(LONGEST_SHUT_US / 1e6)


@dataclass(frozen=True, slots=True)
class Request:
    """A verb with its arguments as JSON has them."""

    verb: str
    who: str
    args: Mapping[str, object]


def plain(action: Action) -> Action:
    """The same without its reason."""
    return replace(action, reason="")


def requests(action: Action, now: Snapshot, backend: str) -> list[Request]:
    """The verbs that do it. `now` has the tenant that it names."""
    match action:
        case Slice(tenant, slice_us, level):
            return [Request("set-slice", tenant, {"slice_us": max(1, round(slice_us)), "level": LEVELS[level]})]
        case Bind(tenant, sms):
            # rounded up: a tier is the largest set within the share, and the share of just this set may be a fraction
            percent = min(100, -(-100 * sms // now.sms))
            return [Request("set-sm", tenant, {"percent": percent, "timeout": 0})]
        case Move(tenant, pctx):
            return [Request("bind", tenant, {"pctx": pctx, "timeout": 0})]
        case Gate(tenant, True):
            return [Request("resume", tenant, {})]
        case Gate(tenant, False):
            view = now.tenant(tenant)
            spatial = view is not None and now.lane_of(view) == "spatial"
            if spatial:
                return [Request("hold", tenant, {})]
            return [Request("hold", tenant, {"lease": _LEASE_S}) if backend == "kmod" else Request("pause", tenant, {})]
        case Preempt(tenant):
            return [Request("preempt", tenant, {})]
        case Park(tenant, room_for):
            return [Request("park", tenant, {"timeout": 0, "room_for": int(room_for)})]
        case Reflex(tenant, busy_sms):
            return [Request("set-busy", tenant, {"sms": busy_sms})]
        case ClassRow():
            return [Request("set-class", action.klass, row(action))]
    raise TypeError(f"{action!r} is no action")


def row(action: ClassRow) -> dict[str, Any]:
    """Arguments of set-class."""
    made = {name: getattr(action, name) for name in _ROW if getattr(action, name) is not None}
    if action.level is not None:
        made["level"] = LEVELS[action.level]
    return made


_ROW: Final = ("weight", "slice_us", "level", "floor_permille", "turn_us")


def before(action: Action, view: TenantView) -> Action | None:
    """What stands for the tenant now, as an action that would bring it back."""
    match action:
        case Slice(tenant):
            return Slice(tenant, view.slice_us, view.level)
        case Bind(tenant) | Move(tenant):
            return Move(tenant, view.pctx) if view.pctx else Bind(tenant, view.standing_sms or view.sms)
        case Gate(tenant):
            return Gate(tenant, view.gate_open)
        case Reflex(tenant):
            return Reflex(tenant, view.reflex_sms)
    return None


def stands(action: Action, view: TenantView) -> bool:
    """Whether it would change nothing, as far as the last look tells."""
    match action:
        case Gate():
            return action.open == view.gate_open
        case Move():
            return action.pctx == view.pctx
        case Bind():
            return action.sms == (view.standing_sms or view.sms)
    return False


def same(first: Action | None, second: Action | None) -> bool:
    """Equal but for the reasons."""
    return first is not None and second is not None and plain(first) == plain(second)


def undo(kind: str, tenant: str, standing: Action | None, by_hand: tuple[str, ...]) -> list[Request]:
    """What takes back one thing that a policy set: `standing` was there before it."""
    if kind == "Gate":
        return [Request("resume", tenant, {})]
    if kind == "Slice":
        if by_hand:  # release would take what a person set, too
            slice_us = standing.slice_us if isinstance(standing, Slice) else 2048.0
            return [Request("set-slice", tenant, {"slice_us": round(slice_us), "level": LEVELS[1]})]
        return [Request("release", tenant, {})]
    if kind == "Reflex":
        return [Request("set-busy", tenant, {"sms": standing.busy_sms if isinstance(standing, Reflex) else None})]
    if isinstance(standing, Move):
        return [Request("bind", tenant, {"pctx": standing.pctx, "timeout": 0})]
    return [Request("set-sm", tenant, {"percent": 100, "timeout": 0})]


def row_back(klass: str, row: ClassInfo | None, floor: int | None = None) -> list[dict[str, Any]]:
    """Arguments of set-class, one after the other, that bring back a row as it was before a policy changed it; without
    rows the floor, in permille."""
    if row is None:
        return [{"reset": True} if floor is None else {"floor_permille": floor}]
    kept = {name: getattr(row, name) for name in _ROW if getattr(row, name) is not None}
    return [{"reset": True}, kept] if klass in CLASSES else [kept]  # to reset another one is to forget it
