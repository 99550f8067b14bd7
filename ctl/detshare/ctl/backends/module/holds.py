# SPDX-License-Identifier: Apache-2.0
"""Holds by order with their leases: whoever is to stay held is asked for again before the lease ends.

The kernel lets go by itself what nobody renews, so a daemon that dies holds nobody for longer than one lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core.accounts import Target
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.link import Link
from detshare.ctl.netlink.records import HoldRow

LEASE_S: Final = 10
"""of a hold that lasts until somebody ends it"""
_RENEW_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a target is to be held, and when that was asked for last."""

    gate: bool
    pause: bool
    asked: float


class Holds:
    """The holds that this process wants. Blocking, for one thread; errors are those of Link."""

    def __init__(self, link: Link, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self._wanted: dict[Target, Wanted] = {}

    def hold(self, target: Target, *, gate: bool, pause: bool, lease_s: float | None = None) -> HoldRow:
        """Hold it; without `lease_s` until let_go() or close(), with it for that long and no longer."""
        lasting = lease_s is None
        row = self._link.hold(target, gate=gate, pause=pause, lease_ms=int((lease_s or LEASE_S) * 1000))
        self._wanted.pop(target, None)
        if lasting:
            self._wanted[target] = Wanted(gate, pause, self._clock())
        return row

    def let_go(self, target: Target) -> HoldRow:
        """End a hold. KernelRefused with ENOENT where there is none."""
        self._wanted.pop(target, None)
        return self._link.let_go(target)

    def adopt(self, found: Iterable[tuple[Target, HoldRow]]) -> list[Target]:
        """Take up what an earlier daemon held: leases that are not longer than ours. What was taken up."""
        taken = []
        for target, row in found:
            if target not in self._wanted and 0 < row.lease_ms <= LEASE_S * 1000:
                self._wanted[target] = Wanted(row.gate, row.pause, float("-inf"))
                taken.append(target)
        return taken

    def keep(self) -> list[tuple[Target, str]]:
        """Renew what needs it; what is lost, with the reason."""
        lost = []
        for target, wanted in list(self._wanted.items()):
            if self._clock() - wanted.asked < _RENEW_S:
                continue
            try:
                self._link.hold(target, gate=wanted.gate, pause=wanted.pause, lease_ms=LEASE_S * 1000)
                self._wanted[target] = Wanted(wanted.gate, wanted.pause, self._clock())
            except KernelRefused as error:
                del self._wanted[target]
                lost.append((target, error.words or str(error)))
        return lost

    @property
    def renewed(self) -> frozenset[Target]:
        """Targets that stay held as long as this process lives."""
        return frozenset(self._wanted)

    def close(self) -> list[str]:
        """Let everybody go that is held here. What could not be done."""
        problems = []
        for target in list(self._wanted):
            try:
                self.let_go(target)
            except KernelRefused:
                continue  # its lease, its process or its cgroup ended
            except OSError as error:
                problems.append(f"{target.text}: {error}")
        return problems
