# SPDX-License-Identifier: Apache-2.0
"""The module as a scheduler on the simulated GPU: latency by class, shares, buckets, gates, events, floors."""

from __future__ import annotations

from statistics import median
from typing import Any

from detshare.tools.bench.stats import percentile
from detshare.tools.bench.vm.machines import Machine, run
from detshare.tools.bench.vm.report import Report

PARTS = ("latency", "shares", "buckets", "idle", "gates", "events", "floors")
Line = dict[str, Any]


def measure(report: Report, machine: Machine, seconds: float, parts: tuple[str, ...] = PARTS) -> None:
    """Rows of one machine."""
    words = ("--seconds", seconds, "--parts", ",".join(parts))
    lines = run(machine, "sched", *words, timeout=600 + seconds * 60, took=report.record)
    what = machine.text

    def of(event: str) -> list[Line]:
        return [line for line in lines if line["event"] == event]

    if "latency" in parts:
        _latency(report, what, of("latency"), of("pause"))
    if "shares" in parts:
        _shares(report, what, of("shares"))
    for line in of("bucket"):
        rate = line["used_us"] / line["span"] / 1e6
        name = f"{what}: GPU time with a bucket of {line['permille'] / 10:g} %, {line['kernels']}"
        report.row(name, rate, "part", line["permille"] / 1e3)
        report.row(f"{name}: away by", abs(rate * 1e3 / line["permille"] - 1), "part", target="<= 0.02")
    if "idle" in parts:
        _idle(report, what, of("idle"))
    for line in of("gates"):
        _gates(report, what, line)
    for line in of("events"):
        for kind, late in sorted(line["late_us"].items()):
            name = f"{what}: event {kind}, from the fact to who listens"
            report.row(f"{name}, p50 of {len(late)}", percentile(late, 50), "us", target="<= 1000")
            report.row(f"{name}, p99", percentile(late, 99), "us")
    for line in of("floor"):
        _floor(report, what, line)
    (left,) = of("left")
    for name in ("objects", "clients", "frames"):
        report.row(f"{what}: {name} kept by the module at the end", left[name], name, target="== 0")
    report.kernel_log(what, lines)


def _latency(report: Report, what: str, lines: list[Line], pauses: list[Line]) -> None:
    took = [line["pause_ns"] / 1e3 for line in pauses if line["pause_ns"] is not None]
    pause = percentile(took, 99)
    report.row(f"{what}: pause of an endless kernel, p50", median(took), "us")
    report.row(f"{what}: pause of an endless kernel, p99", pause, "us")
    by = {line["scheme"]: line for line in lines}
    alone = by["alone"]
    report.row(f"{what}: high class alone, GPU time from launch to end, p50", alone["gpu_p50_us"], "us")
    report.row(f"{what}: high class alone, GPU time from launch to end, p99", alone["gpu_p99_us"], "us")
    for scheme, text in (("no module", "without the module"), ("slices", "slices only"), ("classes", "classes")):
        line = by[scheme]
        name = f"{what}: high class beside endless kernels, {text}"
        report.row(f"{name}, p50", line["gpu_p50_us"], "us", alone["gpu_p50_us"])
        # what one may have to wait for: the low class's slice, and its pause, were it due at once
        bound = alone["gpu_p99_us"] + line["slice_low_us"] + (pause if scheme == "classes" else 0.0)
        target = None if scheme == "no module" else "<= 1 x baseline"
        report.row(f"{name}, p99 (baseline: alone, a slice and a pause more)", line["gpu_p99_us"], "us", bound, target)
        high, low = line["used_us"]
        part = low / (line["span"] * 1e6 - high)
        judged = ">= 0.9" if scheme == "classes" else None
        report.row(f"{what}: low class, {text}: part of what the high one left", part, "part", target=judged)


def _shares(report: Report, what: str, lines: list[Line]) -> None:
    for line in lines:
        groups = "equal channel groups" if len(set(line["groups"])) == 1 else f"{line['groups'][0]} and "
        if len(set(line["groups"])) > 1:
            groups += f"{line['groups'][1]} channel groups"
        one, other = line["used_us"]
        got = other / max(1, one)
        if line["weights"] is None:
            report.row(
                f"{what}: without the module, {groups}: GPU time of the second for one of the first", got, "ratio"
            )
            continue
        first, second = line["weights"]
        name = f"{what}: weights {first}:{second}, {groups}"
        report.row(f"{name}: GPU time of the second for one of the first", got, "ratio", second / first)
        total = one + other
        away = max(
            abs(used / total * (first + second) / weight - 1) for used, weight in ((one, first), (other, second))
        )
        report.row(f"{name}: farthest share from its weight", away, "part", target="<= 0.05")


def _idle(report: Report, what: str, lines: list[Line]) -> None:
    for line in lines:
        kicks, faults = line["kicks"], line["faults"]
        if line["what"] == "bursts":
            bursts = kicks / line["burst"]
            report.row(
                f"{what}: bursts of {line['burst']} rings after {line['rest_ms']} ms of rest",
                bursts,
                "bursts",
                target=">= 1",
            )
            report.row(f"{what}: page faults for a burst", faults / bursts, "faults", target="<= 1.05")
            continue
        text = "no class" if line["what"] == "unmanaged" else "the highest of two classes"
        name = f"{what}: a program of {text} that rings without rest"
        report.row(f"{name}: rings", kicks, "rings", target="> 0")
        target = "== 0" if line["what"] == "unmanaged" else None
        report.row(f"{name}: page faults for a million rings", faults * 1e6 / max(1, kicks), "faults", target=target)


def _gates(report: Report, what: str, line: Line) -> None:
    report.row(f"{what}: gates shut and opened while {line['threads']} threads ring", line["rounds"], "rounds")
    report.row(f"{what}: rings", line["kicks"], "rings", target="> 0")
    report.row(f"{what}: rings that got through a shut gate", line["slipped"], "rings", target="== 0")
    report.row(f"{what}: rings that were lost", line["lost"], "rings", target="== 0")
    for name, text in (
        ("close_us", "from the request to shut until the last ring that got through"),
        ("shut_us", "from the request to shut until the module's answer"),
        ("open_us", "from the request to open until the next ring"),
    ):
        for figure, shown in (("p50", "median"), ("p99", "p99")):
            report.row(f"{what}: {text}, {shown}", line[name][figure], "us")


def _floor(report: Report, what: str, line: Line) -> None:
    permille = line["permille"]
    text = "no floor" if permille is None else f"a floor of {permille / 10:g} %"
    part = line["used_us"][1] / line["span"] / 1e6
    name = f"{what}: low class beside a high one that never rests, {text}"
    target = "<= 0.01" if permille is None else f">= {0.9 * permille / 1e3:g}"
    report.row(f"{name}: part of the GPU's time", part, "part", None if permille is None else permille / 1e3, target)
    if permille is not None:
        # its turn comes in every period of 100 ms
        report.row(f"{name}: longest time without any", line["longest_s"] * 1e3, "ms", target="<= 200")
