# SPDX-License-Identifier: Apache-2.0
"""Holds the stated p99 of those who go first by what the background beside them gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from detshare.ctl.policy.shipped.asked import RANKS, Asked, rank
from detshare.ctl.policy.shipped.governor import PAUSED, Governor, Reading
from detshare.ctl.policy.types import Action, Gate, Share, Snapshot, TenantView

__all__ = ["Background", "reading"]

STALE_US: Final = 10_000_000.0
"""who has told nothing for so long, and is not active, is at rest"""
USUAL: Final = 2
"""floor of class low in percent where nobody can say what it is (docs/classes.md)"""
SHUT_US: Final = 9_000_000.0
OPEN_US: Final = 600_000.0
"""a policy may hold a tenant for ten seconds at once, and lets it go for a twentieth of that (guard.py)"""


def reading(view: TenantView, goal_us: float) -> Reading | None:
    """The p99 of a tenant beside its goal; None where it tells nothing, or told its last long ago."""
    if not view.requests or view.request_age_us > max(STALE_US, view.request_window_us):
        return None
    return Reading(view.name, goal_us, view.request_p99_us, view.requests, view.request_window_us)


class Background:
    """One for each policy object. Classes low and idle of the temporal lane are the background; idle has half of the
    floor of low, and waits where even a floor of 0 is too much."""

    def __init__(self, most: int, margin: float) -> None:
        self._most, self._margin = most, margin
        self._asked = Asked()
        self._governors: dict[str, Governor] = {}
        self._why: dict[str, str] = {}
        """GPU -> reason of the last step"""
        self._floors: dict[str, dict[str, int]] = {}
        """tenant -> GPU -> its floor for that GPU's sake: it has one floor for all of them, the lowest"""
        self._shut: dict[str, float] = {}
        """tenants that are held, and since when"""
        self._let_go: dict[str, float] = {}

    def forget(self, tenant: str) -> None:
        """It came anew, or went."""
        self._asked.forget(tenant)
        for kept in (self._floors, self._shut, self._let_go):
            kept.pop(tenant, None)

    def look(self, now: Snapshot, readings: list[Reading]) -> Iterator[Action]:
        """What is to be changed on one GPU. `readings`: of those whose goal is stated and who tell of requests."""
        mine = [each for each in now.tenants if rank(each) <= RANKS["low"] and now.lane_of(each) == "temporal"]
        if not readings:
            if self._governors.pop(now.gpu, None) is not None or self._why.pop(now.gpu, None) is not None:
                yield from self._give_back(now, mine)
            return
        governor = self._governors.get(now.gpu)
        if governor is None:
            floors = [each.floor for each in mine if each.klass == "low" and each.floor is not None]
            standing = min(round(max(floors, default=USUAL)), self._most)
            governor = self._governors[now.gpu] = Governor(standing, self._most, self._margin)
        if why := governor.judge(now.now_us, readings):
            self._why[now.gpu] = why
        if now.gpu in self._why:  # else everything is as it was found
            more = "; still above, and nothing is left to take" if governor.exhausted else ""
            yield from self._apply(now, mine, governor.level, self._why[now.gpu] + more)

    def _apply(self, now: Snapshot, mine: Iterable[TenantView], level: int, why: str) -> Iterator[Action]:
        for view in mine:
            if now.shares:
                floor = max(0, level) if view.klass == "low" else (max(0, level) + 1) // 2
                wanted = self._floors.setdefault(view.name, {})
                wanted[now.gpu] = floor
                yield from self._asked.put(view, Share(view.name, min(wanted.values()), reason=why))
            if view.klass == "idle":
                yield from self._pause(now, view, level == PAUSED, why)

    def _pause(self, now: Snapshot, view: TenantView, wanted: bool, why: str) -> Iterator[Action]:
        since, rested = self._shut.get(view.name), self._let_go.get(view.name, -1e18)
        if since is not None and (not wanted or now.now_us - since >= SHUT_US):
            del self._shut[view.name]
            self._let_go[view.name] = now.now_us
            pause = f"{why}; nobody is held for more than ten seconds at once" if wanted else why
            yield from self._asked.put(view, Gate(view.name, True, pause))
        elif since is None and wanted and now.now_us - rested >= OPEN_US and "Gate" not in view.by_hand:
            self._shut[view.name] = now.now_us
            self._asked.renew(view.name, "Gate")
            yield from self._asked.put(view, Gate(view.name, False, why))

    def _give_back(self, now: Snapshot, mine: Iterable[TenantView]) -> Iterator[Action]:
        for view in mine:
            wanted = self._floors.get(view.name, {})
            wanted.pop(now.gpu, None)
            self._shut.pop(view.name, None)
            if wanted:  # another GPU's sake
                yield from self._asked.put(view, Share(view.name, min(wanted.values()), reason="as its other GPU asks"))
            else:
                yield from self._asked.back(view, "nobody here has a goal and tells how long its requests take")
