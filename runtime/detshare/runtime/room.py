# SPDX-License-Identifier: Apache-2.0
"""Whose the room is that a park made: who was parked for somebody stays away until that one has its memory.

Without that, the parked one's next call would take the room back before the other got to it. A time on the policy page
says how long; it runs out by itself, so a daemon that dies keeps nobody away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from detshare.runtime import board_layout as layout
from detshare.runtime.board import monotonic_ns
from detshare.runtime.policies import Policies
from detshare.runtime.tenant import Tenant, wants

__all__ = ["MOST_NS", "Room"]

MOST_NS: Final = 30_000_000_000
"""the longest that a GPU's room is somebody's who has not taken it"""

_AWAY: Final = (layout.PARK_AWAY, layout.PARK_COMING, layout.PARK_WAITING)


def _partly(tenant: Tenant) -> bool:
    """Whether some of its memory is on its GPU, and some is not."""
    counters = tenant.pages.counters
    away = counters.get("park_state") in _AWAY
    return away and 0 < counters.get("parked_bytes") < counters.get("parkable_bytes")


class Room:
    """Of all GPUs. The caller holds the lock of `tenants`."""

    def __init__(self, tenants: Mapping[str, Tenant], policies: Policies) -> None:
        self._tenants = tenants
        self._policies = policies
        self._first: dict[str, tuple[Tenant, int]] = {}
        """GPU -> who has its room first, and until when"""
        self._lacks: dict[str, int] = {}
        """GPU -> bytes that its first lacked when that time was set in the midst of an exchange"""
        self._late: dict[str, Tenant] = {}
        """GPU -> who had all of its time and is not home: the others go before it"""

    def give(self, victim: Tenant, pid: int) -> None:
        """`victim` is about to be parked for the process `pid`: nothing where that has no board on its GPU."""
        gpu = victim.record.gpu.uuid
        first = next((each for each in self._on(gpu) if each.record.pid == pid and each is not victim), None)
        if first is None:
            return
        until = monotonic_ns() + MOST_NS
        self._first[gpu] = first, until
        self._lacks.pop(gpu, None)
        first.park.comes, first.park.leaves = True, False
        self._policies.show(first)
        victim.park.stay_until = until
        self._keep_away(gpu, first, until)

    def presses(self) -> bool:
        """Whether somebody waits for room."""
        now = monotonic_ns()
        return any(wants(tenant, now) for tenant in tuple(self._tenants.values()))

    def tick(self, now_ns: int) -> None:
        """Let the others come where the first has what it waited for, gave up, or had its time."""
        for tenant in self._stranded():
            tenant.park.comes, tenant.park.leaves = True, False
            self._policies.show(tenant)
            self._first[tenant.record.gpu.uuid] = tenant, now_ns + MOST_NS
        for gpu, (first, until) in list(self._first.items()):
            here = list(self._on(gpu))
            if first in here and _partly(first) and sum(map(_partly, here)) > 1:
                lacks = first.pages.counters.get("parked_bytes")
                if lacks < self._lacks.get(gpu, lacks + 1):  # while it comes, others have no room for all of theirs
                    until = now_ns + MOST_NS
                    self._first[gpu], self._lacks[gpu] = (first, until), lacks
            home = first in here and first.pages.counters.get("park_state") == layout.PARK_HOME
            if first in here and now_ns < until and not (home and not wants(first, now_ns)):
                self._keep_away(gpu, first, until)
                continue
            del self._first[gpu]
            self._lacks.pop(gpu, None)
            self._late.pop(gpu, None)
            if first in here and not home:
                self._late[gpu] = first
            if first in here:
                self._count(first)
                first.park.comes, first.park.leaves = False, not home
                self._policies.show(first)
            for tenant in here:
                self._stay(tenant, 0)

    def count(self) -> None:
        """What those who come home in parts have given back of their host memory."""
        for tenant in self._tenants.values():
            if tenant.park.comes:
                self._count(tenant)

    @staticmethod
    def _count(tenant: Tenant) -> None:
        tenant.park.arena = tenant.pages.counters.get("arena_bytes")

    def _stranded(self) -> list[Tenant]:
        """Who is to come first where nobody is: who did under the last daemon; and of those that wait, where some are
        partly away and nobody is home whom a policy could ask, who lacks least."""
        chosen = []
        for gpu in {tenant.record.gpu.uuid for tenant in self._tenants.values()} - set(self._first):
            here = list(self._on(gpu))
            came = [tenant for tenant in here if tenant.park.comes]
            states = [(tenant.pages.counters.get("park_state"), tenant) for tenant in here]
            waiting = [tenant for state, tenant in states if state == layout.PARK_WAITING]
            if not came and any(map(_partly, here)) and all(state in _AWAY for state, _ in states):
                late = self._late.get(here[0].record.gpu.uuid)
                came = sorted(waiting, key=lambda each: (each is late, each.pages.counters.get("parked_bytes")))
            chosen += came[:1]
        return chosen

    def _on(self, gpu: str) -> Iterator[Tenant]:
        return (tenant for tenant in self._tenants.values() if tenant.record.gpu.uuid == gpu)

    def _keep_away(self, gpu: str, first: Tenant, until: int) -> None:
        self._stay(first, 0)
        for tenant in self._on(gpu):
            away = tenant.pages.counters.get("park_state") != layout.PARK_HOME
            if tenant is not first and away:
                self._stay(tenant, until)

    def _stay(self, tenant: Tenant, until: int) -> None:
        if tenant.park.stay_until != until:
            tenant.park.stay_until = until
            self._policies.show(tenant)
