# SPDX-License-Identifier: Apache-2.0
"""Programs that change their GPU: the accounts follow them, their pages stay.

Only programs of the temporal lane move. Their slot lies on a page where nobody holds anybody, so it stays on that of
the GPU where they began: their library has it mapped. What is counted goes by Record.gpu.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from detshare.ctl.core.driver import ProcessId
from detshare.runtime import board_layout as layout
from detshare.runtime.board import monotonic_ns
from detshare.runtime.directory import Directory
from detshare.runtime.policies import Policies
from detshare.runtime.tenant import Tenant

__all__ = ["Moves", "known_as", "reattached"]


def known_as(gpu: str, claimed: str) -> str:
    """Record.known of a program on `gpu` whose library says `claimed`."""
    return "" if claimed == gpu else claimed


def reattached(mine: Iterable[Tenant], claimed: str) -> Tenant | None:
    """Of a process's tenants that one which was moved, and whose context ended and begins anew.

    Whichever UUID the driver tells it then, that before the move or that after it: it is where it was moved. A slot
    that is not left is another program's in the same process (exec), which knows nothing of a move.
    """
    for tenant in mine:
        left = tenant.slot.get("state") == layout.SLOT_LEAVING
        if tenant.record.known and left and claimed in (tenant.record.known, tenant.record.gpu.uuid):
            return tenant
    return None


class Moves:
    """`tenants` and `lock` are those of who lets programs in."""

    def __init__(
        self, tenants: Mapping[str, Tenant], lock: threading.RLock, policies: Policies, directory: Directory
    ) -> None:
        self._tenants = tenants
        self._lock = lock
        self._policies = policies
        self._directory = directory

    def stay(self, process: ProcessId, seconds: float) -> None:
        """For so long its own calls do not bring back what is parked, and it parks for a plain way back; 0: from now on
        all is as before. A daemon that dies keeps nobody away for longer."""
        with self._lock:
            for tenant in self._of(process):
                tenant.park.moves_until = monotonic_ns() + int(seconds * 1e9) if seconds else 0
                self._policies.show(tenant)

    def moved(self, process: ProcessId, old: str, new: str) -> None:
        """Its memory of GPU `old` is on `new` from now on. OSError: it is counted so, and not over a restart."""
        with self._lock:
            for tenant in self._of(process):
                if tenant.record.gpu.uuid != old:
                    continue
                gpu = replace(tenant.record.gpu, uuid=new)
                tenant.record = replace(tenant.record, gpu=gpu, known=known_as(new, tenant.record.page))
                self._directory.save(tenant.record)
            self._policies.apply_all(old)
            self._policies.apply_all(new)

    def has_moved(self, process: ProcessId) -> bool:
        """Whether it is not where it began."""
        with self._lock:
            return any(tenant.record.known for tenant in self._of(process))

    def state(self, process: ProcessId) -> set[int]:
        """layout.PARK_* of its GPUs; empty where it ended."""
        with self._lock:
            try:
                return {tenant.pages.counters.get("park_state") for tenant in self._of(process)}
            except ValueError:  # its pages are closed
                return set()

    def other_parts(self, process: ProcessId, new: str) -> str:
        """Why the SMs of GPU `new` are not as those that it has; empty where they are, or nobody is there to tell."""
        with self._lock:
            there = {(t.record.gpu.sms, t.record.gpu.step) for t in self._tenants.values() if t.record.gpu.uuid == new}
            here = {(t.record.gpu.sms, t.record.gpu.step) for t in self._of(process)}
        if not there or there == here:
            return ""
        (sms, step), (other, other_step) = next(iter(here or there)), next(iter(there))
        return f"its GPU has {sms} SMs in steps of {step}, that one {other} in steps of {other_step}"

    def _of(self, process: ProcessId) -> list[Tenant]:
        return [tenant for tenant in self._tenants.values() if tenant.record.process == process]
