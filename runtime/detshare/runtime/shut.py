# SPDX-License-Identifier: Apache-2.0
"""Parked programs that are kept out of the driver, while its own checkpoint has what their park left on the GPU.

A driver that is checkpointed keeps every thread that calls it, and nobody sees that. So the library keeps them instead,
and says that one waits. The request stands as long as a daemon renews its lease.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from detshare.ctl.core.driver import ProcessId
from detshare.runtime import board_layout as layout
from detshare.runtime.policies import Policies
from detshare.runtime.tenant import Tenant

__all__ = ["Shut"]


class Shut:
    """`tenants` and `lock` are those of who lets programs in."""

    def __init__(self, tenants: Mapping[str, Tenant], lock: threading.RLock, policies: Policies) -> None:
        self._tenants = tenants
        self._lock = lock
        self._policies = policies

    def all(self) -> set[ProcessId]:
        """Who is asked to stay out, or was by an earlier daemon."""
        with self._lock:
            return {tenant.record.process for tenant in self._tenants.values() if tenant.park.deep}

    def ask(self, process: ProcessId, on: bool) -> None:
        """Keep a program out of the driver from now on, or let it in."""
        with self._lock:
            for tenant in self._of(process):
                if on:
                    # never the number that the library acknowledged last
                    tenant.park.deeps = max(tenant.park.deeps, tenant.pages.counters.get("deep")) % 0xFFFFFFFF + 1
                tenant.park.deep = tenant.park.deeps if on else 0
                self._policies.lease(tenant)
                self._policies.show(tenant)

    def stands(self, process: ProcessId) -> bool | None:
        """True: none of its threads is in the driver. False: its memory is on the GPU, or it ended. None: not yet."""
        with self._lock:
            mine = self._of(process)
            try:
                home = (layout.PARK_HOME, layout.PARK_LENT)
                away = all(t.pages.counters.get("park_state") not in home for t in mine)
                there = all(t.pages.counters.get("deep") == t.park.deep for t in mine)
            except ValueError:  # its pages are closed
                return False
        if not mine or not away:
            return False
        return True if there else None

    def wants_back(self, process: ProcessId) -> bool:
        """Whether a call of it waits for the driver."""
        with self._lock:
            try:
                return any(tenant.pages.counters.get("wants_back") for tenant in self._of(process))
            except ValueError:  # its pages are closed
                return False

    def _of(self, process: ProcessId) -> list[Tenant]:
        return [tenant for tenant in self._tenants.values() if tenant.record.process == process]
