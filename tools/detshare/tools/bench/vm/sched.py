# SPDX-License-Identifier: Apache-2.0
"""The module as a scheduler on the simulated GPU: latency by class, shares, buckets, gates, events, floors."""

from __future__ import annotations

from statistics import median
from typing import Final

from detshare.tools.bench.lines import Line
from detshare.tools.bench.stats import percentile, spread
from detshare.tools.bench.vm import mix
from detshare.tools.bench.vm.machines import Machine, run
from detshare.tools.bench.vm.report import Report

PARTS = ("latency", "shares", "buckets", "idle", "gates", "events", "floors")
MIXES = ("mixes",)

SWITCH_US: Final = 205
"""What loading another channel group's context takes on an H100 (docs/how/class-numbers.md: three results), and so in
tests/nvsim. On the GPU who wakes up waits for the rest of the running slice and then for this, so that is what a slice
costs a launch."""
FEW: Final = 20
"""Fewer events than this are not judged"""


def measure(report: Report, machine: Machine, seconds: float, parts: tuple[str, ...] = PARTS) -> None:
    """Rows of one machine."""
    words = ("--seconds", seconds, "--parts", ",".join(parts))
    lines = run(machine, "sched", *words, timeout=600 + seconds * 60, took=report.record)
    what = machine.text

    def of(event: str) -> list[Line]:
        return [line for line in lines if line["event"] == event]

    if "latency" in parts:
        _latency(report, what, of("latency"), of("pauses"))
        _switches(report, what, *of("switches"))
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
        _events(report, what, line)
    for line in of("floor"):
        _floor(report, what, line)
    mix.rows(report, what, of("mix"))
    (left,) = of("left")
    for name in ("objects", "clients", "shadows"):
        report.row(f"{what}: {name} kept by the module at the end", left[name], name, target="== 0")
    report.kernel_log(what, lines)


def _latency(report: Report, what: str, lines: list[Line], pauses: list[Line]) -> None:
    took = [ns / 1e3 for line in pauses for ns in line["pause_ns"] if ns is not None]
    report.row(f"{what}: pause of an endless kernel, p50 of {len(took)}", median(took), "us")
    report.row(f"{what}: pause of an endless kernel, p99", percentile(took, 99), "us")
    alone = _launches(lines, "alone")
    fewest = min(len(_launches(lines, line["scheme"])) for line in lines)
    report.row(f"{what}: high class, fewest launches of a scheme", fewest, "launches")
    name = f"{what}: high class alone, GPU time from launch to end"
    report.row(f"{name}, p50", percentile(alone, 50), "us")
    report.row(f"{name}, p99", percentile(alone, 99), "us")
    _rounds(report, name, lines, "alone")
    for scheme, text in (("no module", "without the module"), ("slices", "slices only"), ("turns", "turns")):
        _beside(report, what, lines, scheme, text)


def _launches(lines: list[Line], scheme: str) -> list[float]:
    """GPU time of each, microseconds, over all rounds."""
    return [us for line in lines if line["scheme"] == scheme for us in line["gpu_us"]]


def _rounds(report: Report, name: str, lines: list[Line], scheme: str) -> None:
    each = spread([percentile(line["gpu_us"], 99) for line in lines if line["scheme"] == scheme])
    report.row(f"{name}, least p99 of a round", each.low, "us")
    report.row(f"{name}, greatest p99 of a round", each.high, "us")


def _beside(report: Report, what: str, lines: list[Line], scheme: str, text: str) -> None:
    here = [line for line in lines if line["scheme"] == scheme]
    alone, beside = _launches(lines, "alone"), _launches(lines, scheme)
    p99 = percentile(beside, 99)
    name = f"{what}: high class beside endless kernels, {text}"
    report.row(f"{name}, p50", percentile(beside, 50), "us", percentile(alone, 50))
    # what one may have to wait for: the low class's slice
    bare = percentile(alone, 99) + here[0]["slice_low_us"]
    bound = bare + SWITCH_US
    target = None if scheme == "no module" else "<= 1 x baseline"
    switch = f"a switch of {SWITCH_US} us as on an H200"
    report.row(f"{name}, p99 (baseline: alone, a slice and {switch})", p99, "us", bound, target)
    report.row(f"{name}, the same p99 (baseline: alone, a slice, no switch)", p99, "us", bare)
    _rounds(report, name, lines, scheme)
    report.record(
        {"event": "bounds", "what": what, "scheme": scheme, "p99_us": p99, "bound_us": bound, "without_switch_us": bare}
    )
    high, low = (sum(line["used_us"][index] for line in here) for index in (0, 1))
    part = low / (sum(line["span"] for line in here) * 1e6 - high)
    judged = ">= 0.9" if scheme == "turns" else None
    report.row(f"{what}: low class, {text}: part of what the high one left", part, "part", target=judged)


def _switches(report: Report, what: str, line: Line) -> None:
    """By what two endless programs lose; the reference beside it."""
    used = sum(line["used_us"])
    lost = (line["span"] * 1e6 - used) / (used / line["slice_us"])
    report.row(f"{what}: switch between two programs, from what they lose", lost, "us", SWITCH_US)


def _events(report: Report, what: str, line: Line) -> None:
    """Kinds that were to be provoked must be there; what happened a few times is not judged."""
    for kind in sorted({*line["expected"], *line["late_us"]}):
        late = line["late_us"].get(kind, [])
        name = f"{what}: event {kind}"
        if kind in line["expected"] or len(late) < FEW:
            wanted = kind in line["expected"]
            text = f"{name}: heard" if wanted else f"{name}: heard, too few to judge"
            report.row(text, len(late), "events", target=f">= {FEW}" if wanted else None)
        if len(late) >= FEW:
            text = f"{name}, from the fact to who listens"
            report.row(f"{text}, p50 of {len(late)}", percentile(late, 50), "us", target="<= 1000")
            report.row(f"{text}, p99", percentile(late, 99), "us")


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
        # its window of 10 ms comes that often at a floor of 10 %
        report.row(f"{name}: longest time without any", line["longest_s"] * 1e3, "ms", target="<= 200")
