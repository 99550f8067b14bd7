# SPDX-License-Identifier: Apache-2.0
"""Who decodes on one GPU, and how fast tokens come: a server may be on several, beside others on each."""

from __future__ import annotations

from detshare.ctl.policy.shipped.asked import RANKS, rank
from detshare.ctl.policy.shipped.phases import DECODE, Phases
from detshare.ctl.policy.types import Snapshot, TenantView

__all__ = ["Decoding"]


class Decoding:
    """One for each GPU of a policy object."""

    def __init__(self) -> None:
        self._phases = Phases()
        self._graphs: dict[str, tuple[float, int]] = {}
        """of each decoder at the last tick: when, and how many so far; none for one that was at rest"""
        self._decoded: dict[str, float] = {}
        """when each tenant was seen to decode last"""
        self.phase: dict[str, str] = {}
        """of each tenant that has one"""
        self.part = 0.5
        """of a decoder's slice for those in prefill"""
        self.steered: set[str] = set()
        """tenants of which something was asked here, and not given back"""

    def forget(self, tenant: str) -> None:
        """It came anew, or went."""
        self._phases.forget(tenant)
        self.steered.discard(tenant)
        for kept in (self._graphs, self._decoded, self.phase):
            kept.pop(tenant, None)

    def look(self, now: Snapshot, view: TenantView) -> bool:
        """Whether its phase is another one now."""
        before, phase = self.phase.get(view.name, ""), self._phases.look(view, now.sms)
        self.phase[view.name] = phase
        if phase == DECODE and view.active:
            self._decoded[view.name] = now.now_us
        return phase != before

    def slowest(self, now: Snapshot) -> float:
        """Microseconds between two tokens of the slowest decoder since the last call; 0 where nobody can be timed."""
        worst, counted = 0.0, {}
        for view in now.tenants:
            if self.phase.get(view.name) == DECODE and view.active and view.graph_launches:
                then, graphs = self._graphs.get(view.name, (now.now_us, view.graph_launches))
                worst = max(worst, (now.now_us - then) / max(1, view.graph_launches - graphs))
                counted[view.name] = now.now_us, view.graph_launches
        self._graphs = counted
        return worst

    def decoders(self, since_us: float) -> set[str]:
        """Those that were seen to decode since then, and do nothing else now."""
        return {name for name, at in self._decoded.items() if at >= since_us and self.phase.get(name) == DECODE}

    def inside(self, view: TenantView) -> bool:
        """Whether it makes way for who decodes."""
        return self.phase.get(view.name) != DECODE and rank(view) >= RANKS["normal"]
