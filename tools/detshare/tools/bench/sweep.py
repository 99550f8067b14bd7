# SPDX-License-Identifier: Apache-2.0
"""sweep: LC latency and BE throughput over slices and levels of both; the classes' rule comes from its result.

Cells come in a fixed order, the most telling first, until the time budget is spent. Alone and default slicing are
measured at the begin, in the middle and at the end of each pair.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import DECODE_10, PAIRS, Pair, small
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import SETTLE, Session
from detshare.tools.bench.stats import Latency, latencies, latency, rate, spread

BE_US = (20, 50, 100, 200, 500, 1000, 2000, 5000)
LC_MS = (2, 20, 100, 1000)


@dataclass(frozen=True)
class Cell:
    """One setting: slices in microseconds and levels."""

    be_us: int
    lc_us: int
    lc_level: str
    be_level: str

    def __str__(self) -> str:
        return f"BE {self.be_us} us {self.be_level}, LC {self.lc_us / 1000:g} ms {self.lc_level}"


@dataclass
class Reference:
    """Alone and default figures of a pair."""

    alone: list[Latency] = field(default_factory=list)
    default: list[Latency] = field(default_factory=list)
    background: list[float] = field(default_factory=list)


def cells(seed: int) -> list[Cell]:
    """All cells: every BE slice with the longest and a middle LC slice at levels high and low first, then the other
    LC slices, then the other levels, each part in a random order so that drift of the machine does not look like an
    effect."""
    choose = random.Random(seed)
    levels = [("high", "low"), ("high", "medium"), ("medium", "low"), ("medium", "medium")]
    parts = [
        [(be, lc, *levels[0]) for be in BE_US for lc in (20, 1000)],
        [(be, lc, *levels[0]) for be in BE_US for lc in (2, 100)],
    ]
    parts += [[(be, lc, *pair) for be in (50, 200, 1000) for lc in (20, 1000)] for pair in levels[1:]]
    seen = {cell for part in parts for cell in part}
    rest = [(be, lc, *pair) for pair in levels[1:] for be in BE_US for lc in LC_MS]
    parts.append([cell for cell in rest if cell not in seen])
    for part in parts:
        choose.shuffle(part)
    return [Cell(be, lc * 1000, high, low) for part in parts for be, lc, high, low in part]


def measure(session: Session, what: str, lc: Program, be: Program) -> tuple[Latency, float]:
    """LC's latency and BE's rate in one slot; rate 0 where nothing was finished in the slot nor soon after it."""
    slot = session.slot(what, session.options.seconds, lc, be)
    windows = slot.windows[be.name]
    return latency(latencies(slot.windows[lc.name])), rate(windows) if windows else 0.0


def reference(session: Session, pair: Pair, lc: Program, be: Program, into: Reference) -> None:
    """Alone and default slicing, once."""
    for program in (lc, be):
        session.steer.release(program.pid)
    be.hold()
    slot = session.slot(f"{pair.name}: alone", session.options.seconds, lc)
    into.alone.append(latency(latencies(slot.windows[lc.name])))
    be.go_on()
    found, speed = measure(session, f"{pair.name}: default", lc, be)
    into.default.append(found)
    into.background.append(speed)


def run_pair(session: Session, pair: Pair, until: float) -> tuple[Reference, dict[Cell, tuple[Latency, float]]]:
    """As many cells as fit before ``until`` (monotonic seconds)."""
    be, lc = session.start_all({f"{pair.name}: BE": pair.background, f"{pair.name}: LC": pair.latency})
    for program in (lc, be):
        session.steer.adopted(program.pid)
    found: dict[Cell, tuple[Latency, float]] = {}
    around = Reference()
    reference(session, pair, lc, be, around)
    begun, middle = time.monotonic(), False
    cost = session.options.seconds + SETTLE + 0.05
    for cell in cells(session.options.seed):
        left = until - time.monotonic() - 4 * cost  # the references still to come
        if left < cost:
            break
        if not middle and time.monotonic() - begun > left:
            reference(session, pair, lc, be, around)
            middle = True
        session.steer.verb("set-slice", be.pid, slice_us=cell.be_us, level=cell.be_level)
        session.steer.verb("set-slice", lc.pid, slice_us=cell.lc_us, level=cell.lc_level)
        found[cell] = measure(session, f"{pair.name}: {cell}", lc, be)
    reference(session, pair, lc, be, around)
    session.finish(lc, be)
    return around, found


def report(session: Session, pair: Pair, around: Reference, found: dict[Cell, tuple[Latency, float]]) -> None:
    """Rows: the references with their spread, then four rows per cell."""
    alone, default = spread([one.p99 for one in around.alone]), spread([one.p99 for one in around.default])
    background = spread(around.background)
    alone_p50 = spread([one.p50 for one in around.alone]).median
    session.row(f"{pair.name}: alone: LC p50", alone_p50, "us")
    session.spread_rows(f"{pair.name}: alone: LC p99", alone, "us")
    session.row(f"{pair.name}: default: LC p50", spread([one.p50 for one in around.default]).median, "us", alone_p50)
    session.spread_rows(f"{pair.name}: default: LC p99", default, "us", alone.median)
    session.spread_rows(f"{pair.name}: default: BE", background, pair.unit)
    for cell, (lc, speed) in sorted(found.items(), key=lambda item: (item[0].lc_us, item[0].be_us, str(item[0]))):
        what = f"{pair.name}: {cell}"
        session.row(f"{what}: LC p50", lc.p50, "us", alone_p50)
        session.row(f"{what}: LC p99", lc.p99, "us", alone.median)
        session.row(f"{what}: LC max", lc.max, "us")
        session.row(f"{what}: BE", speed, pair.unit, background.median)


def run(session: Session) -> None:
    """The whole experiment."""
    iterations = session.calibrate(50, "periodic")[0], session.calibrate(687)[0]
    session.manage()
    pairs = (DECODE_10, PAIRS[-1], small(*iterations))
    panels: dict[str, dict[tuple[int, int], float]] = {}
    for number, pair in enumerate(pairs):
        left = session.options.budget - session.elapsed
        until = time.monotonic() + left / (len(pairs) - number)
        around, found = run_pair(session, pair, until)
        report(session, pair, around, found)
        alone, background = spread([one.p99 for one in around.alone]).median, spread(around.background).median
        usual = {cell: one for cell, one in found.items() if (cell.lc_level, cell.be_level) == ("high", "low")}
        panels[f"{pair.name}\nLC p99 / alone"] = {
            (c.be_us, c.lc_us // 1000): one[0].p99 / alone for c, one in usual.items()
        }
        panels[f"{pair.name}\nBE / default"] = {
            (c.be_us, c.lc_us // 1000): one[1] / background for c, one in usual.items()
        }
        session.say(f"{pair.name}: {len(found)} of {len(cells(1))} cells within the budget")
    plot.heat(session.options.out / "sweep.png", panels, BE_US, LC_MS, ("BE slice, us", "LC slice, ms"))
