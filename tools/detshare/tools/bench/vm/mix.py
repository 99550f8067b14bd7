# SPDX-License-Identifier: Apache-2.0
"""Rows about mixes: what a high class and several programs of a low one get by each scheme."""

from __future__ import annotations

from detshare.tools.bench.lines import Line
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.vm.report import Report

__all__ = ["rows"]


def rows(report: Report, what: str, lines: list[Line]) -> None:
    """Of each line `mix`."""
    for line in lines:
        high, *low = (used / line["span"] / 1e6 for used in line["used_us"])
        name = f"{what}: high class {line['what']}, {line['count']} of a low one, {line['scheme']}"
        if line["gpu_us"]:
            report.row(f"{name}: high class, launch to end, p50", percentile(line["gpu_us"], 50), "us")
            report.row(f"{name}: high class, launch to end, p99", percentile(line["gpu_us"], 99), "us")
        report.row(f"{name}: high class, part of the time", high, "part")
        turns = line["scheme"] == "turns"
        if line["what"] == "bursts":
            target = ">= 0.9" if turns else None
            report.row(f"{name}: low class, part of what is left", sum(low) / (1 - high), "part", target=target)
            target = ">= 0.8" if turns else None
            report.row(f"{name}: low class, least for one of the mean", _evenness(low), "part", target=target)
        else:
            floor = line["floor"] / 1e3
            report.row(f"{name}: low class, part of the time", sum(low), "part", floor)
            target = "<= 0.01" if turns else None
            report.row(f"{name}: low class, away from its floor by", abs(sum(low) - floor), "part", target=target)


def _evenness(parts: list[float]) -> float:
    """0 where nobody got anything."""
    mean = sum(parts) / len(parts)
    return min(parts) / mean if mean else 0.0
