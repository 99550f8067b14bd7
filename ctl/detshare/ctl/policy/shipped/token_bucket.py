# SPDX-License-Identifier: Apache-2.0
"""``token-bucket``: a rate of GPU time for each group and each tenant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from detshare.ctl.policy.shipped.asked import Asked
from detshare.ctl.policy.shipped.use import Use
from detshare.ctl.policy.types import Action, Gate, Policy, Snapshot, TenantView

__all__ = ["TokenBucket"]

RENEW_US: Final = 5_000_000.0
"""a gate is a lease of ten seconds in a daemon"""
REFUSED_US: Final = 100_000.0
"""a gate that is open all the same is asked for again after so long: it was refused"""
FORGET_US: Final = 60_000_000.0
"""a group of which nobody was seen on any GPU for so long is gone"""


@dataclass
class _Bucket:
    """GPU time that may be used: microseconds, negative when overdrawn."""

    tokens: float
    at: float
    """when it was filled last: each GPU has ticks of its own, and a group may be on several"""

    def fill(self, now_us: float, rate: float, burst: float) -> None:
        self.tokens = min(burst, self.tokens + max(0.0, now_us - self.at) * rate)
        self.at = max(self.at, now_us)


class TokenBucket(Policy):
    """Rule: GPU time comes into a bucket at a rate and goes out as it is used; who has none left waits at its gate.

    Two levels: a tenant has a bucket by its class, and all tenants of one group (named tenant, cgroup, container)
    share one of `group` percent. Either empty holds it, until both have half a burst again. What a group leaves unused
    its members cannot borrow: a bucket is a cap.

    Source: hierarchical token bucket (Linux tc-htb, without borrowing); the time used is what the context-switch log
    says where it is read, else the backend's estimate (docs/how/module-scheduling.md, buckets).
    Limits: looks every 10 ms, so a tenant may overdraw by that much and pays it back. Without detshare.ko the time used
    is known with each look of the daemon only, and taken for what it was before in between; it is paused for some
    tenths of a second at a time.
    A rate of 100 percent never holds. Gates stop launches, not what is queued already. Who is held while other GPUs
    wait for it in a collective holds them, too: cap all ranks of a job or none.
    """

    tick_us = 10_000.0
    lacks = {
        "rows": "without detshare.ko whoever has used up its bucket is paused as a whole, from one look to the next",
    }

    @dataclass(frozen=True)
    class Params:
        """Percent of the GPU's time, and the most that is saved up."""

        high: float = 100.0
        normal: float = 75.0
        low: float = 25.0
        idle: float = 10.0
        group: float = 100.0
        burst_ms: float = 100.0

        def __post_init__(self) -> None:
            for name in ("high", "normal", "low", "idle", "group"):
                if not 1 <= getattr(self, name) <= 100:
                    raise ValueError(f"{name} is {getattr(self, name):g}; it must be 1 to 100 percent")
            if not 10 <= self.burst_ms <= 10_000:
                raise ValueError(f"burst_ms is {self.burst_ms:g}; it must be 10 to 10000")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self._asked = Asked()
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._used: dict[str, Use] = {}
        self._held: dict[str, float] = {}
        """since when, or since the gate was last renewed"""

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A full bucket."""
        self._forget(tenant)
        view = now.tenant(tenant)
        if view is not None:
            self._used[tenant] = Use.from_now(now.now_us, view)
        return ()

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Its bucket goes; its group's stays: others of it may be on another GPU, or come at once."""
        self._forget(tenant)
        self._buckets = {
            key: each
            for key, each in self._buckets.items()
            if key[0] == "tenant" or now.now_us - each.at < FORGET_US
        }
        return ()

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """Fill, pay, hold, let go."""
        burst = self.params.burst_ms * 1000
        for view in now.tenants:
            used = self._used.setdefault(view.name, Use.from_now(now.now_us, view)).look(now.now_us, view)
            for key, rate in self._rates(view):
                bucket = self._buckets.setdefault(key, _Bucket(burst, now.now_us))
                bucket.fill(now.now_us, rate, burst)
                bucket.tokens = min(burst, bucket.tokens - used)
        for view in now.tenants:
            if now.lane_of(view) != "mps":  # which has no gates
                yield from self._one(now, view, burst)

    def _one(self, now: Snapshot, view: TenantView, burst: float) -> Iterator[Action]:
        buckets = [(key, self._buckets[key]) for key, rate in self._rates(view) if rate < 1]
        empty = [key for key, each in buckets if each.tokens <= 0]
        since = self._held.get(view.name)
        if since is None:
            if empty:
                self._held[view.name] = now.now_us
                why = f"bucket of {' '.join(empty[0])} is empty"
                yield from self._asked.put(view, Gate(view.name, False, why))
        elif all(each.tokens >= burst / 2 for _, each in buckets):
            del self._held[view.name]
            yield from self._asked.put(view, Gate(view.name, True, "tokens for half a burst are there"))
        elif now.now_us - since >= (REFUSED_US if view.gate_open else RENEW_US):
            self._held[view.name] = now.now_us
            self._asked.renew(view.name, "Gate")
            yield from self._asked.put(view, Gate(view.name, False, "still without tokens"))

    def _rates(self, view: TenantView) -> Iterator[tuple[tuple[str, str], float]]:
        """Its buckets, and what comes into each: microseconds a microsecond."""
        yield ("tenant", view.name), getattr(self.params, view.klass, self.params.normal) / 100
        if view.group:
            yield ("group", view.group), self.params.group / 100

    def _forget(self, tenant: str) -> None:
        self._asked.forget(tenant)
        self._buckets.pop(("tenant", tenant), None)
        self._used.pop(tenant, None)
        self._held.pop(tenant, None)
