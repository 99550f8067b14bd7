# SPDX-License-Identifier: Apache-2.0
"""Figures of several seeds: means with 95 % confidence intervals, and the table of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from detshare.ctl.sim.llm import LlmServer

__all__ = ["Estimate", "estimates", "figures", "percentiles", "table"]

T95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""two-sided 95 % quantiles of Student's t, by degrees of freedom from 1"""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and half the width of its 95 % confidence interval; None for a single seed."""

    mean: float
    half: float | None
    seeds: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """Of the values that are numbers; None without one."""
    found = [value for value in values if math.isfinite(value)]
    if not found:
        return None
    if len(found) == 1:
        return Estimate(found[0], None, 1)
    free = len(found) - 1
    quantile = T95[free - 1] if free <= len(T95) else 1.96 + 2.5 / free
    return Estimate(float(np.mean(found)), float(quantile * np.std(found, ddof=1) / math.sqrt(len(found))), len(found))


def estimates(seeds: Sequence[Mapping[str, float]]) -> dict[str, Estimate | None]:
    """By figure."""
    return {name: estimate([seed[name] for seed in seeds]) for name in seeds[0]}


def percentiles(values: Any, name: str, scale: float = 1.0) -> dict[str, float]:
    """p50, p90 and p99 of what is not NaN; NaN without any."""
    found = np.asarray(values, dtype=float)
    found = found[~np.isnan(found)]
    if not found.size:
        return {f"{name} p{percent}": math.nan for percent in (50, 90, 99)}
    return {
        f"{name} p{percent}": float(np.percentile(found, percent, method="inverted_cdf")) * scale
        for percent in (50, 90, 99)
    }


def figures(server: LlmServer, end_us: float, ttft_slo_ms: float, tpot_slo_ms: float) -> dict[str, float]:
    """Of one server after ``end_us``. A request without a first token whose limit has passed is a violation too."""
    served, arrived = server.served, server.arrived
    times = server.trace.times[:arrived] * 1e6
    ttft, tpot = served.ttft[:arrived], served.tpot[:arrived]
    late = np.where(np.isnan(ttft), end_us - times, ttft) > ttft_slo_ms * 1e3
    slow = np.nan_to_num(tpot, nan=0.0) > tpot_slo_ms * 1e3
    seconds = end_us / 1e6
    return {
        **percentiles(ttft, "TTFT ms", 1e-3),
        **percentiles(tpot, "TPOT ms", 1e-3),
        **percentiles(served.gaps, "longest gap ms", 1e-3),
        "TTFT violations %": 100.0 * float(late.mean()) if arrived else math.nan,
        "TPOT violations %": 100.0 * float(slow.mean()) if arrived else math.nan,
        "SLO violations %": 100.0 * float((late | slow).mean()) if arrived else math.nan,
        "requests/s": served.finished / seconds,
        "tokens/s": served.tokens / seconds,
        "unfinished requests": float(server.unfinished),
    }


def table(columns: Mapping[str, Mapping[str, Estimate | None]]) -> str:
    """One line per figure, one column per scheme."""
    names = list(next(iter(columns.values())))
    lines = [f"{'':24}" + "".join(f"{column:>24}" for column in columns)]
    for name in names:
        cells = [_cell(found[name]) for found in columns.values()]
        lines.append(f"{name:24}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def _cell(found: Estimate | None) -> str:
    if found is None:
        return "-"
    return f"{found.mean:.4g}" + (f" +- {found.half:.2g}" if found.half is not None else "")


def as_json(columns: Mapping[str, Mapping[str, Estimate | None]]) -> dict[str, Any]:
    """The same for programs."""
    return {
        column: {name: None if each is None else asdict(each) for name, each in found.items()}
        for column, found in columns.items()
    }
