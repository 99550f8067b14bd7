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


class Room:
    """Of all GPUs. The caller holds the lock of `tenants`."""

    def __init__(self, tenants: Mapping[str, Tenant], policies: Policies) -> None:
        self._tenants = tenants
        self._policies = policies
        self._first: dict[str, tuple[Tenant, int]] = {}
        """GPU -> who has its room first, and until when"""

    def give(self, victim: Tenant, pid: int) -> None:
        """`victim` is about to be parked for the process `pid`: nothing where that has no board on its GPU."""
        gpu = victim.record.gpu.uuid
        first = next((each for each in self._on(gpu) if each.record.pid == pid and each is not victim), None)
        if first is None:
            return
        until = monotonic_ns() + MOST_NS
        self._first[gpu] = first, until
        victim.park.stay_until = until
        self._keep_away(gpu, first, until)

    def presses(self) -> bool:
        """Whether somebody waits for room."""
        now = monotonic_ns()
        return any(wants(tenant, now) for tenant in tuple(self._tenants.values()))

    def tick(self, now_ns: int) -> None:
        """Let the others come where the first has what it waited for, gave up, or had its time."""
        for gpu, (first, until) in list(self._first.items()):
            here = list(self._on(gpu))
            home = first in here and first.pages.counters.get("park_state") == layout.PARK_HOME
            if first in here and now_ns < until and not (home and not wants(first, now_ns)):
                self._keep_away(gpu, first, until)
                continue
            del self._first[gpu]
            for tenant in here:
                self._stay(tenant, 0)

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
