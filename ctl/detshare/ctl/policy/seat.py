# SPDX-License-Identifier: Apache-2.0
"""A policy in its place, and how it does there: it decides for one GPU, or for all that have none of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from detshare.ctl.core.snapshot import Check
from detshare.ctl.policy.host import Host
from detshare.ctl.policy.registry import Loaded
from detshare.ctl.policy.types import MECHANISMS

__all__ = ["RETRY_S", "Seat"]

RETRY_S: Final = (30.0, 600.0)
"""a policy that failed is begun anew after that; each time twice as long, up to the second"""


def _counts() -> dict[str, int]:
    return dict.fromkeys(("calls", "switches", "actions", "refused", "undone"), 0)


@dataclass(slots=True, eq=False)
class Seat:
    """For the engine's thread; others may read."""

    gpu: str = ""
    """UUID of the one GPU; of one that is not there what the configuration calls it. Empty: all that have none of their
    own"""
    number: int | None = None
    """of that GPU; None: it is not there"""
    limit_s: float = 0.0
    host: Host | None = None
    loaded: Loaded | None = None
    failed: str = ""
    failures: int = 0
    retry_at: float = 0.0
    retry_s: float = RETRY_S[0]
    tick_due: float = 0.0
    counts: dict[str, int] = field(default_factory=_counts)
    refused: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=20))
    latency: deque[float] = field(default_factory=lambda: deque(maxlen=4096))

    @property
    def name(self) -> str:
        """The policy's; empty where none was loaded yet."""
        return self.loaded.name if self.loaded else ""

    @property
    def place(self) -> str:
        """For the front of a message: "GPU 1: "; empty for all that have none of their own."""
        if not self.gpu:
            return ""
        return f"GPU {self.gpu if self.number is None else self.number}: "

    @property
    def about(self) -> dict[str, str]:
        """For the log of decisions: which GPU; nothing for all."""
        return {"gpu": self.gpu} if self.gpu else {}

    @property
    def tick_s(self) -> float:
        return 0.0 if self.host is None else self.host.policy.tick_us / 1e6

    @property
    def works(self) -> bool:
        """Whether there is a policy that has not failed."""
        return self.host is not None and not self.host.failure

    def sit(self, loaded: Loaded) -> None:
        """Another policy, or another object of the same, has the place."""
        if self.host is not None:
            self.host.close()
        self.host, self.loaded = Host(loaded.policy, self.limit_s), loaded
        self.failed = ""

    def fail(self, why: str, now: float) -> Host | None:
        """What was decided stands; it is begun anew after a while. The host whose thread is left behind."""
        self.failed = why
        self.failures += 1
        self.retry_at, self.retry_s = now + self.retry_s, min(RETRY_S[1], 2 * self.retry_s)
        if self.host is not None:
            self.host.close()
        return self.host

    def status(self, missing: frozenset[str]) -> dict[str, Any]:
        """What `policy show` says of it. `missing`: of MECHANISMS."""
        loaded, host, latency = self.loaded, self.host, sorted(self.latency)
        return {
            "name": self.name,
            "params": dict(loaded.params) if loaded else {},
            "rule": loaded.rule if loaded else "",
            "remarks": [] if loaded is None else _remarks(loaded, missing),
            "failed": self.failed,
            "failures": self.failures,
            "hooks": sorted(host.hooks) if host else [],
            "slowest_ms": round(1000 * host.slowest, 3) if host else 0.0,
            "limit_ms": 1000 * self.limit_s,
            "counts": dict(self.counts),
            "refused": [{"when": when, "text": text} for when, text in tuple(self.refused)],
            "latency_p50_ms": round(1000 * latency[len(latency) // 2], 3) if latency else None,
            "latency_p99_ms": round(1000 * latency[len(latency) * 99 // 100], 3) if latency else None,
        }

    def check(self) -> Check:
        """For `doctor`."""
        option = f" --gpu {self.gpu if self.number is None else self.number}" if self.gpu else ""
        if self.gpu and self.number is None:
            text = f"{self.place}{self.name} waits: there is no such GPU"
            return Check("policy", False, text, f"is it lost? else: detshare-ctl policy unset{option}")
        if self.failed:
            text = f"{self.place}{self.name} failed and is not asked any more: {self.failed}; what it decided stands"
            return Check("policy", False, text, f"mend it, then: detshare-ctl policy set NAME{option}")
        did = f"{self.counts['actions']} decision(s), {self.counts['refused']} refused"
        return Check("policy", True, f"{self.place}{self.name}: {did}")


def _remarks(loaded: Loaded, missing: frozenset[str]) -> list[str]:
    """What the policy cannot do on this machine, and why, in its own words."""
    lacks = getattr(loaded.policy, "lacks", None)
    if not isinstance(lacks, Mapping):
        return []
    return [str(lacks[each])[:300] for each in MECHANISMS if each in missing and each in lacks]
