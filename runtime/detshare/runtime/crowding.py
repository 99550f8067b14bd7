# SPDX-License-Identifier: Apache-2.0
"""How much of the time programs are active, and whether that leaves lower classes anything to hold for.

Holding a lower class while a higher one is active costs it nothing but the time in between, as long as there is such
time. Where there is hardly any, a small set of SMs of its own serves both better: `detshare bench pair` measures it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Counters, Slot

if TYPE_CHECKING:
    from detshare.runtime.tenant import Tenant

WINDOW_NS: Final = 1_000_000_000
"""what a share is taken over"""
ENTER: Final = 0.85
LEAVE: Final = 0.70
"""share of time at which higher classes begin, and cease, to crowd out the lower: neither makes the other true"""


def active_ns(slot: Slot, counters: Counters, now: int) -> int:
    """How long a program was active up to `now` (CLOCK_MONOTONIC ns), since it came.

    A program that is stopped, or died, in mid-work renews its beat no more, and counts as active until then.
    """
    total = int(counters.get("active_ns"))
    if not slot.get("active"):
        return total
    since, beat = slot.get("active_since"), slot.get("beat")
    end = now if now - beat < layout.BEAT_STALE_NS else beat
    return total + max(end - since, 0)


class Share:
    """The share of time that one program was active over the last window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def note(self, now: int, active: int) -> None:
        """`active` is what active_ns() gave at `now`."""
        self._seen.append((now, active))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_NS:
            self._seen.popleft()

    @property
    def value(self) -> float | None:
        """0..1; None before it was looked at for a whole window."""
        if not self._seen or (spent := self._seen[-1][0] - self._seen[0][0]) < WINDOW_NS:
            return None
        return min(max((self._seen[-1][1] - self._seen[0][1]) / spent, 0.0), 1.0)


def crowded(before: bool, share: float) -> bool:
    """Whether a class is crowded out by higher ones that are active for `share` of the time."""
    return share >= LEAVE if before else share >= ENTER


def look(tenants: Sequence[Tenant], now: int) -> list[tuple[Tenant, float]]:
    """Take note of everybody's activity at `now`; those for whom `crowded` changed, with the share of the higher ones.

    Several higher ones count as if they were never active at the same time.
    """
    for tenant in tenants:
        tenant.share.note(now, active_ns(tenant.slot, tenant.pages.counters, now))
    changed = []
    for tenant in tenants:
        rank, gpu = tenant.slot.get("class"), tenant.record.gpu.uuid
        above = [t for t in tenants if t.record.gpu.uuid == gpu and t.slot.get("class") > rank]
        share = min(1.0, sum(other.share.value or 0.0 for other in above))
        if crowded(tenant.crowded, share) is not tenant.crowded:
            tenant.crowded = not tenant.crowded
            changed.append((tenant, share))
    return changed
