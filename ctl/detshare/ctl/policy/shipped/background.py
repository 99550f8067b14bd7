# SPDX-License-Identifier: Apache-2.0
"""Holds the stated p99 of those who go first by what the background beside them gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from detshare.ctl.policy.shipped.asked import RANKS, Asked, rank
from detshare.ctl.policy.shipped.governor import PAUSED, Governor, Reading
from detshare.ctl.policy.types import Action, ClassRow, Gate, Snapshot, TenantView

__all__ = ["Background", "reading"]

STALE_US: Final = 10_000_000.0
"""who has told nothing for so long, and is not active, is at rest"""
USUAL: Final = {"low": 20, "idle": 10}
"""floors in permille where nobody can say what they are (docs/use/scheduling.md)"""
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
    floor of low, and waits where even a floor of 0 is too much. A class has one floor on all GPUs: the lowest that one
    of them asks for."""

    def __init__(self, most: int, margin: float) -> None:
        self._most, self._margin = most, margin
        self._asked = Asked()
        self._governors: dict[str, Governor] = {}
        self._begun: dict[str, tuple[int, float, dict[str, float]]] = {}
        """GPU -> its level, since when, and the GPU time of each tenant then, microseconds"""
        self._why: dict[str, str] = {}
        """GPU -> reason of the last step; without one everything is as it was found"""
        self._found: dict[str, int] = {}
        """class -> floor in permille before this changed it"""
        self._shut: dict[str, float] = {}
        """tenants that are held, and since when"""
        self._let_go: dict[str, float] = {}

    def forget(self, tenant: str) -> None:
        """It came anew, or went."""
        self._asked.forget(tenant)
        self._shut.pop(tenant, None)
        self._let_go.pop(tenant, None)

    def look(self, now: Snapshot, readings: list[Reading]) -> Iterator[Action]:
        """What is to be changed on one GPU. `readings`: of those whose goal is stated and who tell of requests."""
        mine = [each for each in now.tenants if rank(each) <= RANKS["low"] and now.lane_of(each) == "temporal"]
        if not readings:
            self._governors.pop(now.gpu, None)
            self._begun.pop(now.gpu, None)
            if self._why.pop(now.gpu, ""):
                yield from self._give_back(now, mine)
        elif mine:
            governor = self._governors.get(now.gpu) or self._begin(now.gpu, mine)
            had = self._had(now, mine, governor.level)
            self._why[now.gpu] = governor.judge(now.now_us, readings, had) or self._why.get(now.gpu, "")
            if why := self._why[now.gpu]:
                more = "; still above, and nothing is left to take" if governor.exhausted else ""
                yield from self._apply(now, mine, governor.level == PAUSED, why + more)

    def _begin(self, gpu: str, mine: list[TenantView]) -> Governor:
        if not self._why:
            self._found = dict(USUAL)
            for view in mine:
                if view.floor is not None:
                    self._found[view.klass] = round(10 * view.floor)
        standing = min(round(self._found["low"] / 10), self._most)
        made = self._governors[gpu] = Governor(standing, self._most, self._margin)
        return made

    def _had(self, now: Snapshot, mine: list[TenantView], level: int) -> int:
        """Percent of the GPU that they had together since this level was set."""
        begun = self._begun.get(now.gpu)
        if begun is None or begun[0] != level:
            begun = self._begun[now.gpu] = level, now.now_us, {each.name: each.used_us for each in mine}
        _, since_us, used_us = begun
        grown = sum(max(0.0, each.used_us - used_us.get(each.name, each.used_us)) for each in mine)
        return int(100 * grown / (now.now_us - since_us)) if now.now_us > since_us else 0

    def _apply(self, now: Snapshot, mine: list[TenantView], paused: bool, why: str) -> Iterator[Action]:
        yield from self._floors(now, why)
        for view in mine:
            if view.klass == "idle":
                yield from self._pause(now, view, paused, why)

    def _floors(self, now: Snapshot, why: str) -> Iterator[Action]:
        if not now.floors:
            return
        levels = [max(0, governor.level) for gpu, governor in self._governors.items() if self._why.get(gpu)]
        low, idle = (10 * min(levels), 10 * ((min(levels) + 1) // 2)) if levels else self._found.values()
        yield from self._asked.row(ClassRow("low", floor_permille=low, reason=why))
        yield from self._asked.row(ClassRow("idle", floor_permille=idle, reason=why))

    def _pause(self, now: Snapshot, view: TenantView, wanted: bool, why: str) -> Iterator[Action]:
        since, rested = self._shut.get(view.name), self._let_go.get(view.name, -1e18)
        if since is not None and (not wanted or now.now_us - since >= SHUT_US):
            del self._shut[view.name]
            self._let_go[view.name] = now.now_us
            text = f"{why}; nobody is held for more than ten seconds at once" if wanted else why
            yield from self._asked.put(view, Gate(view.name, True, text))
        elif since is None and wanted and now.now_us - rested >= OPEN_US and "Gate" not in view.by_hand:
            self._shut[view.name] = now.now_us
            self._asked.renew(view.name, "Gate")
            yield from self._asked.put(view, Gate(view.name, False, why))

    def _give_back(self, now: Snapshot, mine: list[TenantView]) -> Iterator[Action]:
        why = "nobody here has a goal and tells how long its requests take"
        yield from self._floors(now, why)
        for view in mine:
            self._shut.pop(view.name, None)
            yield from self._asked.back(view, why)
