# SPDX-License-Identifier: Apache-2.0
"""Percentiles, spread over rounds, and shares of GPU time: pure functions of measured windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Latency", "Spread", "deviation", "jain", "latencies", "latency", "percentile", "rate", "shares", "spread"]

Window = dict[str, Any]


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile: a value that was measured, never one between two. ValueError without values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values were measured, so there is no percentile")
    rank = math.ceil(percent / 100.0 * len(ordered))
    return ordered[max(0, min(len(ordered), rank) - 1)]


def jain(some: Sequence[float]) -> float:
    """Jain's index of fairness, 1/n to 1; 0 where nobody did anything."""
    square = sum(each * each for each in some)
    return sum(some) ** 2 / (len(some) * square) if square else 0.0


@dataclass(frozen=True)
class Spread:
    """One figure over several rounds."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median (mean of the two middle ones where their number is even), least and greatest."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no round was measured")
    half = len(ordered) // 2
    middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return Spread(middle, ordered[0], ordered[-1])


@dataclass(frozen=True)
class Latency:
    """Latencies of some windows, microseconds."""

    p50: float
    p99: float
    max: float
    count: int


def latencies(windows: Iterable[Window]) -> list[float]:
    """All latencies of the windows, microseconds."""
    return [value for window in windows for value in window.get("latency_us", ())]


def latency(values: Sequence[float]) -> Latency:
    """p50, p99 and maximum; ValueError without values."""
    return Latency(percentile(values, 50), percentile(values, 99), max(values), len(values))


def rate(windows: Sequence[Window], key: str = "items") -> float:
    """``key`` per second over the windows; each window's length is what it really took. ValueError without windows."""
    seconds = sum(window["t1"] - window["t0"] for window in windows)
    if seconds <= 0:
        raise ValueError("no window was measured, so there is no rate")
    return float(sum(window.get(key, 0) for window in windows) / seconds)


def shares(shared: Sequence[float], alone: Sequence[float]) -> list[float]:
    """Each tenant's part of the GPU: its rate beside the others over its rate alone, the work per unit the same."""
    return [mine / full for mine, full in zip(shared, alone, strict=True)]


def deviation(parts: Sequence[float], weights: Sequence[float]) -> float:
    """The greatest relative distance of a tenant's part of the sum from its weight's part of all weights."""
    total, weight = sum(parts), sum(weights)
    if total <= 0:
        raise ValueError("no tenant made progress, so there are no shares to compare")
    return max(abs(part / total * weight / wanted - 1) for part, wanted in zip(parts, weights, strict=True))
