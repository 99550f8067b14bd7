# SPDX-License-Identifier: Apache-2.0
"""What was measured in the phases of the demo, and the table that closes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PHASES = ("alone", "before", "after", "released")
NOISE = 3.0
"""times its p50 is the p99 of a program alone on a GPU where its machine stands still now and then"""


@dataclass(frozen=True, slots=True)
class Figures:
    """One phase. Latencies in microseconds, throughput in units of work per second; None: not measured."""

    p50_us: float | None = None
    p99_us: float | None = None
    count: int = 0
    """latencies behind the percentiles"""
    throughput: float | None = None
    """of all background programs together"""
    slowest: float | None = None
    """of the background program that got on least, where there are several"""
    emulated: bool = False
    """by an emulated processor, which stands still now and then: its p99 says nothing"""


@dataclass(frozen=True, slots=True)
class Closing:
    """The whole demo in figures."""

    proof: str
    machine: str
    latency_program: str
    background_program: str
    unit: str
    phases: Mapping[str, Figures]
    seconds: float

    @property
    def better(self) -> bool:
        """The managed latency is below the one before, and the background goes on."""
        return improved(self.phases) and not stands_still(self.phases)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "better": self.better}

    def verdict(self) -> str:
        """What was seen, in a sentence, whether it went as hoped or not."""
        named = "p50" if noisy(self.phases) else "p99"
        before, after, alone = (judged(self.phases, name) for name in ("before", "after", "alone"))
        if before is None or after is None:
            return "the latency program finished nothing in a phase: nothing can be said"
        seen = f"{named} {milliseconds(before)} before and {milliseconds(after)} after set-priority"
        if alone:
            seen += f" ({before / alone:.2f}x and {after / alone:.2f}x alone)"
        if noisy(self.phases):
            seen = f"{seen}; this machine stands still for longer than any p99 could show"
        if not improved(self.phases):
            return f"{seen}: NOT better; see detshare-ctl doctor"
        if stands_still(self.phases):
            return f"{seen}, but the background does NOT go on; see detshare-ctl ps"
        return seen


def noisy(phases: Mapping[str, Figures]) -> bool:
    """The machine itself, not a neighbour, made the longest latencies: they were long on an idle GPU already."""
    alone = phases["alone"]
    if alone.emulated:
        return True
    return alone.p99_us is not None and alone.p50_us is not None and alone.p99_us > NOISE * alone.p50_us


def judged(phases: Mapping[str, Figures], name: str) -> float | None:
    """The latency of a phase that is compared: the p99, or the p50 where no p99 says anything. us"""
    return phases[name].p50_us if noisy(phases) else phases[name].p99_us


def improved(phases: Mapping[str, Figures]) -> bool:
    """The latency after is below the one before."""
    before, after = judged(phases, "before"), judged(phases, "after")
    return before is not None and after is not None and after < before


def stands_still(phases: Mapping[str, Figures]) -> bool:
    """A background program that was measured finished nothing after set-priority."""
    after = phases["after"]
    return after.throughput == 0 or after.slowest == 0


def percentile(values: Sequence[float], part: float) -> float | None:
    """Nearest rank: a value that was measured; None for no values."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[max(0, -(-int(part * 100 * len(ranked)) // 10_000) - 1)]


def milliseconds(us: float | None) -> str:
    """Microseconds as text in milliseconds."""
    return "-" if us is None else f"{us / 1e3:.2f} ms"


def cells(closing: Closing) -> list[list[str]]:
    """The closing table: first the heading, then p50, p99, ratio and throughput; and that of the slowest program."""
    names = [name for name in PHASES if name in closing.phases]
    phases = [closing.phases[name] for name in names]
    alone = closing.phases["alone"].p99_us
    ratios = ["-" if f.p99_us is None or not alone else f"{f.p99_us / alone:.2f}x" for f in phases]
    rates = ["-" if f.throughput is None else f"{f.throughput:.0f}" for f in phases]
    least = ["-" if f.slowest is None else f"{f.slowest:.0f}" for f in phases]
    rows = [
        ["", *names],
        ["latency p50", *(milliseconds(f.p50_us) for f in phases)],
        ["latency p99", *(milliseconds(f.p99_us) for f in phases)],
        ["p99 to alone", *ratios],
        [f"background {closing.unit}", *rates],
    ]
    return rows if all(f.slowest is None for f in phases) else [*rows, ["the slower of them", *least]]


def table(closing: Closing) -> str:
    """The closing table as text, 80 columns at most."""
    rows = cells(closing)
    first = max(len(row[0]) for row in rows)
    widths = [max(len(row[i]) for row in rows) for i in range(1, len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(first), *(c.rjust(w) for c, w in zip(row[1:], widths, strict=True))]) for row in rows
    ]
    rule = "-" * len(lines[0])
    return "\n".join([f"proof: {closing.proof}", lines[0], rule, *lines[1:]])
