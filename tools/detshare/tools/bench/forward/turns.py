# SPDX-License-Identifier: Apache-2.0
"""Turns, windows, buckets and tricks: what was claimed, and what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from detshare.tools.bench.forward.folder import Line
from detshare.tools.bench.forward.judges import of
from detshare.tools.results import Row

__all__ = ["hostile", "sched"]

DEFAULT: Final = "default slicing, no module"
TURNS: Final = "DetShare"
NEVER_RESTS: Final = "DetShare, server never rests"
FLOOR: Final = 0.02
"""of the class of the backgrounds (claims/mix.py)"""
CAP: Final = 0.25
"""of the bucket (claims/buckets.py)"""

HELD_BACK: Final = ("dup-group", "dup-channel", "dup-share")
"""what the module refuses to other processes: all that is a channel group's"""


def _percentile(some: list[float], part: float) -> float:
    return some[min(int(len(some) * part), len(some) - 1)]


def _mix(some: list[Line]) -> Iterator[Row]:
    phases = {line["scheme"]: line for line in some if "scheme" in line}
    default = phases.get(DEFAULT)
    base = _percentile(default["latencies"], 0.99) if default and default["latencies"] else None
    for scheme, line in phases.items():
        what, latencies = f"mix, {scheme}", line["latencies"]
        if latencies:
            turns = scheme == TURNS and base is not None
            yield Row(f"{what}: p50", _percentile(latencies, 0.5), "us")
            yield Row(f"{what}: p99 of {len(latencies)} requests", _percentile(latencies, 0.99), "us",
                      *((base, "< 1 x baseline") if turns else ()))  # fmt: skip
            yield Row(f"{what}: longest", latencies[-1], "us")
        shares = [count * line["kernel_us"] / 1e6 / line["seconds"] for count in line["kernels"]]
        if sum(shares):
            for number, share in enumerate(shares, 1):
                yield Row(f"{what}: background {number} of {len(shares)}: work, against the GPU alone", share,
                          "of the time", None, "> 0" if scheme == TURNS else None)  # fmt: skip
            yield Row(f"{what}: all backgrounds", sum(shares), "of the time")
        if scheme == NEVER_RESTS:
            served = line["served"] * line["request_us"] / 1e6 / line["seconds"]
            yield Row(f"{what}: server's work", served, "of the time")
            away = 100 * abs(sum(shares) - FLOOR)
            yield Row(f"{what}: backgrounds' distance from their floor of 2 %", away, "points", None, "<= 1")
    rests = [line["rest"] for line in some if "rest" in line]
    if rests:
        launched = sum(rest["launched"] for rest in rests)
        lost = launched - sum(rest["ran"] for rest in rests)
        yield Row(f"mix: kernels launched and not run, of {launched}", lost, "kernels", None, "== 0")


def _buckets(some: list[Line]) -> Iterator[Row]:
    phases = {line["what"]: line for line in some if "what" in line}
    for what, line in phases.items():
        one, other = (count * line["kernel_us"] / 1e6 / line["seconds"] for count in line["kernels"])
        named = f"buckets, {what}"
        if what == "none":
            yield Row(f"{named}: one, by its kernels", one, "of the time")
            yield Row(f"{named}: neighbour, by its kernels", other, "of the time")
            continue
        yield Row(f"{named} of 25 %: by its kernels", one, "of the time", CAP)
        yield Row(f"{named} of 25 %: away from it", abs(one - CAP) / CAP, "of the cap", None, "<= 0.1")
        told = (line["after"]["used_us"] - line["before"]["used_us"]) / 1e6 / line["seconds"]
        yield Row(f"{named}: used, by the module's account", told, "of the time", one)
        yield Row(f"{named}: the account's distance from the kernels", abs(told - one) / CAP, "of the cap", None,
                  "<= 0.1")  # fmt: skip
        yield Row(f"{named}: neighbour, by its kernels", other, "of the time", 1 - one, ">= 0.8 x baseline")
    rests = [line["rest"] for line in some if "rest" in line]
    if rests:
        launched = sum(rest["launched"] for rest in rests)
        lost = launched - sum(rest["ran"] for rest in rests)
        yield Row(f"buckets: kernels launched and not run, of {launched}", lost, "kernels", None, "== 0")


def sched(lines: list[Line]) -> Iterator[Row]:
    """A mix, and a bucket."""
    yield from _mix(of(lines, "mix"))
    yield from _buckets(of(lines, "buckets"))


def _told(line: Line) -> int:
    """The last answer: NV_STATUS, or minus errno."""
    last = line["answers"][-1] if line["answers"] else {"errno": 0, "status": 0}
    return -int(last["errno"]) if last["errno"] else int(last["status"])


def _effect(line: Line) -> tuple[str, int, str, str]:
    """What a trick did: words, value, unit, and what the filter claims of it."""
    goal = line["goal"]
    if goal in ("run", "door"):
        held = "paused" if goal == "run" else "gated"
        return f"own kernels while {held}", line["ran"], "kernels", "== 0"
    if goal == "neighbour":
        return "the neighbour's kernels meanwhile", line["neighbour_ran"], "kernels", "> 0"
    if goal == "share":
        had = sum(not answer["errno"] and not answer["status"] for answer in line["answers"])
        return "objects of the neighbour's that it has", had, "objects", "== 0" if line["trick"] in HELD_BACK else ""
    reached = max(0, len(line["answers"]) - line["denied"])
    return "calls that were not denied", reached, "calls", "== 0"


def _tricks(step: str, lines: list[Line]) -> dict[str, Line]:
    return {line["trick"]: line for line in of(lines, step) if "answers" in line}


def hostile(lines: list[Line]) -> Iterator[Row]:
    """Each trick with the filter, against what the driver makes of it without."""
    tricks, free = _tricks("hostile", lines), _tricks("hostile-unfiltered", lines)
    for name in dict.fromkeys([*tricks, *free]):
        for step, line, other in (("filter", tricks.get(name), free.get(name)), ("no filter", free.get(name), None)):
            if line is None:
                continue
            words, value, unit, claimed = _effect(line)
            yield Row(f"{name}, {step}: is told", _told(line), "NV_STATUS",
                      None if other is None else float(_told(other)))  # fmt: skip
            yield Row(f"{name}, {step}: {words}", value, unit, None if other is None else float(_effect(other)[1]),
                      claimed or None if step == "filter" or line["goal"] == "door" else None)  # fmt: skip
            if step == "filter":
                yield Row(f"{name}, {step}: the neighbour's kernels after it", line["neighbour_after"], "kernels", None,
                          "> 0")  # fmt: skip
    for step in ("hostile", "hostile-unfiltered"):
        broken = [line for line in of(lines, step) if "broke" in line or "stuck" in line]
        if of(lines, step):
            yield Row(f"{step}: tricks after which a program stood still or ended", len(broken), "tricks", None,
                      "== 0" if step == "hostile" else None)  # fmt: skip
        for line in of(lines, step):
            if "neighbour" in line:
                for who in ("neighbour", "own"):
                    lost = line[who]["launched"] - line[who]["ran"]
                    yield Row(f"{step}: {who}: kernels launched and not run, of {line[who]['launched']}", lost,
                              "kernels", None, "== 0" if step == "hostile" else None)  # fmt: skip
