# SPDX-License-Identifier: Apache-2.0
"""Prefill or decode: what a server of a language model is doing, from what it launches."""

from __future__ import annotations

from typing import Final

from detshare.ctl.policy.shipped.asked import RANKS, rank
from detshare.ctl.policy.types import TenantView

__all__ = ["DECODE", "PREFILL", "Phases"]

DECODE: Final = "decode"
PREFILL: Final = "prefill"
ANY_SMS: Final = (58, 160)
"""of the GPUs that servers run on: no fewer (L4), and no more"""


class Phases:
    """Servers launch decode steps as CUDA graphs and prefill kernel by kernel.

    Who launched a graph since the last look decodes. Else grids tell: those of a prefill fill the GPU more than twice,
    those of a decode step without graphs leave SMs free; in between it is what it was before. Grids are those of the
    launch at the head, else of the shape that took most time. Where nobody knows the GPU's SMs, which
    is so in the temporal lane, a grid has to tell for a small and for a large GPU. A tenant of class low or idle is
    no server.
    """

    def __init__(self) -> None:
        self._graphs: dict[str, int] = {}
        self._phase: dict[str, str] = {}

    def look(self, tenant: TenantView, sms: int) -> str:
        """The phase of a tenant on a GPU of ``sms`` SMs since the last look; "" where it cannot be told."""
        if rank(tenant) < RANKS["normal"]:
            return ""
        before = self._graphs.get(tenant.name)
        self._graphs[tenant.name] = tenant.graph_launches
        phase = self._phase.get(tenant.name, "")
        if not tenant.active and tenant.graph_launches == (before or 0):
            return phase
        least, most = (sms, sms) if sms else ANY_SMS
        blocks = tenant.blocks or next((each.blocks for each in tenant.shapes if each.name != "graph"), 0)
        if tenant.graph_launches > (before or 0):
            phase = DECODE
        elif blocks > 2 * most:
            phase = PREFILL
        elif 0 < blocks <= least:
            phase = DECODE
        self._phase[tenant.name] = phase
        return phase

    def forget(self, tenant: str) -> None:
        """It came anew, or went."""
        self._graphs.pop(tenant, None)
        self._phase.pop(tenant, None)
