# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of a job stop together: no collective is begun by some of them and not by the others.

A collective ends when all its ranks have begun it. The daemon lets each rank begin as many as the one that is furthest,
and no more; they are numbered in the order of their launches, the same on all ranks that launch the same. Ranks that do
not (pipelines of sends and receives) come to no such point, and neither does a job with a rank that has no board.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from detshare.runtime.board import monotonic_ns
from detshare.runtime.tenant import Tenant

__all__ = ["SECONDS", "Meeting"]

SECONDS: Final = 0.5
"""how long ranks get to come to one point: some steps of a training, and less than anybody waits for a pause"""
_POLL_S: Final = 0.0002


class Meeting:
    """Use as a context: in it no rank begins another collective; who is held at its end does not until it goes on.

    `tenants`: one of each rank. `known` and `lock` are those of who lets programs in.
    """

    def __init__(
        self, tenants: Sequence[Tenant], known: Mapping[str, Tenant], lock: threading.RLock, lease_ns: int
    ) -> None:
        self._tenants, self._known, self._lock, self._lease_ns = tenants, known, lock, lease_ns
        self._idle: dict[str, float] = {}
        self.number = 0
        """collectives that the rank which is furthest has begun"""
        self.quiet = False
        """each rank has begun as many, and none has work left"""

    def __enter__(self) -> Self:
        until = time.monotonic() + SECONDS
        try:
            self._stop()
            while not self.quiet and time.monotonic() < until:
                time.sleep(_POLL_S)
                self._look()
        except BaseException:
            self._let_on()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_on()

    def _let_on(self) -> None:
        with self._lock:
            for tenant in self._here():
                if not tenant.slot.held:
                    tenant.pages.policy.put("collectives_from", 0)

    @property
    def since(self) -> float:
        """When the first of them had no more work (time.monotonic), of the ranks that have none now."""
        return min(self._idle.values(), default=time.monotonic())

    @property
    def text(self) -> str:
        """Where the ranks are."""
        if self.quiet:
            return f"between two collectives: each rank has ended {self.number}"
        return f"maybe within a collective: its ranks came to no common point within {SECONDS:g} s"

    def _here(self) -> list[Tenant]:
        return [tenant for tenant in self._tenants if self._known.get(tenant.record.name) is tenant]

    def _stop(self) -> None:
        """At the number of who is furthest."""
        with self._lock:
            here = self._here()
            self.number = max((_begun(tenant) for tenant in here), default=0)
            for tenant in here:
                policy = tenant.pages.policy
                policy.lease(monotonic_ns() + self._lease_ns)
                policy.put("collectives_from", self.number + 1)

    def _look(self) -> None:
        with self._lock:
            here = self._here()
            begun = [_begun(tenant) for tenant in here]
            now = time.monotonic()
            for tenant in here:
                if tenant.slot.get("active"):
                    self._idle.pop(tenant.record.name, None)
                else:
                    self._idle.setdefault(tenant.record.name, now)
            if max(begun, default=0) > self.number:  # one had gone in before it saw the bound
                self._stop()
                return
            even = len(here) == len(self._tenants) and min(begun) == self.number
            self.quiet = even and len(self._idle) == len(here)


def _begun(tenant: Tenant) -> int:
    """Held first: one that stops meanwhile counts as begun, never the other way round."""
    held = tenant.pages.counters.get("collectives_held")
    return tenant.pages.counters.get("collectives") - held
