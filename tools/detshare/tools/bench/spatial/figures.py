# SPDX-License-Identifier: Apache-2.0
"""Latencies and rates of several rounds, kept by what was measured: any tuple of words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import Latency, Spread, latency, spread

__all__ = ["Figures"]

Key = tuple[str, ...]


@dataclass
class Figures:
    """Latencies in microseconds, rates in units a second."""

    rounds: dict[Key, list[Latency]] = field(default_factory=lambda: defaultdict(list))
    pooled: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    rates: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))

    def latencies(self, key: Key, values: Sequence[float]) -> None:
        """The latencies of one slot; none at all count as nothing measured."""
        if values:
            self.rounds[key].append(latency(values))
            self.pooled[key] += values

    def rate(self, key: Key, value: float) -> None:
        """The rate of one slot."""
        self.rates[key].append(value)

    def has(self, *keys: Key) -> bool:
        """Whether each was measured."""
        return all(self.rounds.get(key) or self.rates.get(key) for key in keys)

    def spread(self, key: Key, which: str) -> Spread:
        """Over the rounds: ``p50``, ``p99``, ``max`` or ``rate``. ValueError where nothing was measured."""
        if which == "rate":
            return spread(self.rates[key])
        return spread([getattr(one, which) for one in self.rounds[key]])

    def median(self, key: Key, which: str) -> float:
        """The median over the rounds."""
        return self.spread(key, which).median

    def report(self, session: Session, what: str, key: Key, baseline: Key | None = None) -> None:
        """Rows of p50, p99 (medians over rounds), p99 of all rounds together, and the greatest."""
        if not self.rounds.get(key):
            return
        base = None if baseline is None or not self.rounds.get(baseline) else self.median(baseline, "p50")
        session.row(f"{what} p50", self.median(key, "p50"), "us", base)
        base = None if base is None or baseline is None else self.median(baseline, "p99")
        session.row(f"{what} p99", self.median(key, "p99"), "us", base)
        together = latency(self.pooled[key])
        session.row(f"{what} p99 of all rounds together ({together.count} requests)", together.p99, "us")
        session.row(f"{what} max", together.max, "us")

    def table(self, keys: Iterable[tuple[str, Key]], which: str) -> dict[str, float]:
        """Medians by name, of those that were measured."""
        return {name: self.median(key, which) for name, key in keys if self.rounds.get(key) or self.rates.get(key)}
