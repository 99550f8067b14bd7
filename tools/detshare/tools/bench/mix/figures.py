# SPDX-License-Identifier: Apache-2.0
"""What one cell showed: pure functions of times, latencies and readings of the context-switch log, and their form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from detshare.tools.bench.mix.gauges import Gauge
from detshare.tools.bench.stats import percentile

__all__ = [
    "Back",
    "Figure",
    "Measured",
    "Reading",
    "Server",
    "Timeline",
    "back",
    "integrate",
    "longest_gap",
    "readings",
    "server",
]


@dataclass(frozen=True)
class Reading:
    """A program's GPU time as ``ps`` had it: of the `seconds` before `at` (monotonic seconds), shares 0..1."""

    at: float
    seconds: float
    share: float
    useful: float
    stalled_s: float = 0.0


def readings(ps: Mapping[str, Any], gpu: str | None = None) -> dict[int, Reading]:
    """By PID, of one GPU (UUID; None: of each program's busiest). Empty where the log is refused."""
    found: dict[int, Reading] = {}
    for program in ps.get("programs", ()):
        for one in program.get("gpu_time") or ():
            if gpu is not None and one.get("gpu") != gpu:
                continue
            share, useful = float(one["share"]), float(one["useful"])
            reading = Reading(float(ps["taken"]), float(one["seconds"]), share, useful, float(one.get("stalled_s", 0)))
            before = found.get(int(program["pid"]))
            if before is None or share > before.share:
                found[int(program["pid"])] = reading
    return found


def integrate(some: Sequence[Reading], begin: float, end: float) -> Reading | None:
    """The mean of the readings that lie within [begin, end] with all their seconds.

    Where the interval is shorter than a reading, the last one that was taken in it; None where there is none.
    """
    inside = [each for each in some if begin <= each.at - each.seconds and each.at <= end]
    if not inside:
        inside = [each for each in some if begin <= each.at <= end][-1:]
    if not inside:
        return None
    count = len(inside)
    return Reading(
        inside[-1].at,
        inside[-1].seconds,
        sum(each.share for each in inside) / count,
        sum(each.useful for each in inside) / count,
        max(each.stalled_s for each in inside),
    )


def longest_gap(times: Iterable[float], begin: float, end: float) -> float:
    """Seconds, the longest in which nothing ended; the ends of the interval count as if something had ended there."""
    edges = [begin, *sorted(at for at in times if begin <= at <= end), end]
    return max(later - earlier for earlier, later in pairwise(edges))


@dataclass(frozen=True)
class Server:
    """Of the program whose latency counts; microseconds, requests a second."""

    count: int
    p50: float
    p99: float
    max: float
    own_p50: float
    rate: float
    dropped: int = 0
    share: float | None = None
    useful: float | None = None
    """None: without the context-switch log"""
    p999: float | None = None
    answers: dict[str, int] = field(default_factory=dict)
    """what its requests gave, by digest, where it tells: how often"""


def server(
    latency_us: Sequence[float],
    own_us: Sequence[float],
    seconds: float,
    dropped: int,
    log: Reading | None,
    answers: Mapping[str, int] | None = None,
) -> Server:
    """ValueError where it finished no request."""
    if not latency_us:
        raise ValueError("it finished no request")
    share, useful = (None, None) if log is None else (log.share, log.useful)
    return Server(
        len(latency_us),
        percentile(latency_us, 50),
        percentile(latency_us, 99),
        max(latency_us),
        percentile(own_us, 50),
        len(latency_us) / seconds,
        dropped,
        share,
        useful,
        percentile(latency_us, 99.9),
        dict(answers or {}),
    )


@dataclass(frozen=True)
class Back:
    """Of a background: steps a second, the longest time without one, and its GPU time by the log."""

    rate: float
    gap_s: float
    share: float | None = None
    useful: float | None = None
    p99: float | None = None
    """us, where it answers requests that are due at their time"""


def back(
    times: Sequence[float], begin: float, end: float, log: Reading | None, latency_us: Sequence[float] = ()
) -> Back:
    """What a background did in [begin, end]; its latencies where it answers requests."""
    share, useful = (None, None) if log is None else (log.share, log.useful)
    p99 = percentile(latency_us, 99) if latency_us else None
    return Back(len(times) / (end - begin), longest_gap(times, begin, end), share, useful, p99)


@dataclass(frozen=True)
class Figure:
    """One figure of a cell that has no server. `text`: what `value` cannot say."""

    what: str
    value: float
    unit: str
    ids: tuple[str, ...] = ()
    """what others call it"""
    text: str = ""


@dataclass(frozen=True)
class Timeline:
    """Who had the GPU when, for so many microseconds: by program its runs, (begin, length) in microseconds."""

    length_us: int
    lanes: dict[str, list[tuple[int, int]]]


@dataclass(frozen=True)
class Measured:
    """A cell and what it showed. `run` tells runs apart: what was measured alone counts for its own run."""

    cell: str
    run: str
    mix: str
    scheme: str
    weights: tuple[int, ...]
    seconds: float
    server: Server | None
    back: dict[str, Back] = field(default_factory=dict)
    period_ms: float = 0.0
    notes: tuple[str, ...] = ()
    gauge: Gauge | None = None
    figures: tuple[Figure, ...] = ()
    timeline: Timeline | None = None

    def to_json(self) -> dict[str, Any]:
        """A line of the file of cells; what only some cells have is left out of the others."""
        line = asdict(self)
        for one, name in ((line, "figures"), (line, "timeline"), (line["server"] or {}, "answers")):
            if not one.get(name):
                one.pop(name, None)
        for one, name in [*((each, "p99") for each in line["back"].values()), (line["gauge"] or {}, "sensor_cpu")]:
            if name in one and one[name] is None:
                del one[name]
        return line

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Measured:
        """From such a line; KeyError, TypeError where it is none."""
        return cls(
            **{
                **line,
                "weights": tuple(line["weights"]),
                "notes": tuple(line["notes"]),
                "server": None if line["server"] is None else Server(**line["server"]),
                "back": {name: Back(**one) for name, one in line["back"].items()},
                "gauge": Gauge(**line["gauge"]) if line.get("gauge") else None,
                "figures": tuple(Figure(**{**one, "ids": tuple(one["ids"])}) for one in line.get("figures", ())),
                "timeline": _timeline(line["timeline"]) if line.get("timeline") else None,
            }
        )


def _timeline(line: Mapping[str, Any]) -> Timeline:
    lanes = {name: [(int(begin), int(length)) for begin, length in runs] for name, runs in line["lanes"].items()}
    return Timeline(int(line["length_us"]), lanes)
