# SPDX-License-Identifier: Apache-2.0
"""What the cells of a suite say: overheads, throughput, who is better against whom, and the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from detshare.tools.bench.field.cells import failed
from detshare.tools.bench.field.pairs import NEAR_P99, NEAR_STP, Against, against
from detshare.tools.bench.field.policies import SloAware, TpotFirst
from detshare.tools.bench.field.serving import GOODPUT, TPOT_MISSED
from detshare.tools.bench.field.shown import Shown, Together, best, shown, together
from detshare.tools.bench.field.suites import Suite, taking_part
from detshare.tools.bench.field.systems import ALONE, AUTO, Default, ours
from detshare.tools.bench.mix.figures import Measured
from detshare.tools.results import Row

__all__ = ["OVERHEAD", "Against", "Shown", "Together", "against", "best", "brief", "rows", "shown", "together"]

OVERHEAD = 7.2
"""percent: the p99 overhead that Tally's authors publish for theirs"""
NEAR_POINTS = 1.0
"""the same of percentages"""
NOTHING = ("changed outputs", "GPU memory left", "processes left", "newcomers refused")
"""figures of ours that are to be 0"""
BESIDE_MPS = 50.0
"""percent of p99 overhead of MPS above which its throughput is to be reached"""


def brief(cell: Measured) -> str:
    """A cell in one line, for whoever waits."""
    words = [cell.cell + ":"]
    if cell.server is not None:
        served = cell.server
        words.append(f"p50 {served.p50:.0f} p99 {served.p99:.0f} us ({served.count}, every {cell.period_ms:g} ms)")
    words += [f"| {each.what} {each.value:.6g} {each.unit}" for each in cell.figures]
    words += [f"| {name} {one.rate:.2f}/s" for name, one in cell.back.items()]
    return " ".join([*words, *(f"({note[:200]})" for note in cell.notes)])


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if len(ordered) % 2 else sum(ordered[len(ordered) // 2 - 1 :][:2]) / 2


def rows(cells: Sequence[Measured], suite: Suite) -> list[Row]:
    """All that the cells give, and what they add up to."""
    some = shown(cells)
    found = [*_alone(cells), *(row for each in some for row in _cell(each)), *_figures(cells), *_together(cells)]
    for cell in cells:
        if why := failed(cell):
            found.append(Row(f"{cell.mix}: {cell.scheme}: failed: {why[:120]}", 1, "cell"))
    return [*found, *_sums(some, suite)] if some else found


def _alone(cells: Sequence[Measured]) -> Iterator[Row]:
    for cell in cells:
        if cell.scheme != ALONE:
            continue
        if cell.server is not None:
            yield Row(f"{cell.mix}: alone: p99 of {cell.server.count} requests", cell.server.p99, "us")
            yield Row(f"{cell.mix}: alone: mean time between two requests", cell.period_ms, "ms")
        for name, one in cell.back.items():
            yield Row(f"{name}: alone", one.rate, "steps/s")


def _figures(cells: Sequence[Measured]) -> Iterator[Row]:
    """Of probes, each beside what it gave alone."""
    alone = {(cell.mix, each.what): each.value for cell in cells if cell.scheme == ALONE for each in cell.figures}
    for cell in cells:
        for each in cell.figures:
            native = None if cell.scheme == ALONE else alone.get((taking_part(cell.mix)[0], each.what))
            target = "== 0" if ours(cell.scheme) and each.what.startswith(NOTHING) else None
            ids = f" ({', '.join(each.ids)})" if each.ids else ""
            yield Row(f"{cell.mix}: {cell.scheme}: {each.what}{ids}", each.value, each.unit, native, target)


def _together(cells: Sequence[Measured]) -> Iterator[Row]:
    """Each beside the driver's own time slicing, which is what the paper calls temporal sharing."""
    some = together(cells)
    slicing = {each.mix: each.stp for each in some if each.system == Default.name}
    for each in some:
        yield Row(f"{each.mix}: {each.system}: system throughput", each.stp, "of a program", slicing.get(each.mix))
        for name, part in each.progress.items():
            yield Row(f"{each.mix}: {each.system}: {name}: work of that alone", part, "")


def _cell(each: Shown) -> Iterator[Row]:
    what, server = f"{each.mix}: {each.system}", each.server
    yield Row(f"{what}: p50", server.p50, "us", each.alone.p50)
    yield Row(f"{what}: p99 of {server.count} requests", server.p99, "us", each.alone.p99)
    if server.p999 is not None:
        yield Row(f"{what}: p99.9", server.p999, "us", each.alone.p999)
    if each.changed is not None:
        target = "== 0" if ours(each.system) else None
        yield Row(f"{what}: answers that differ from those alone", each.changed, "", None, target)
    for name, (p99, alone) in each.late.items():
        yield Row(f"{what}: {name}: p99", p99, "us", alone)
    for name, part in each.progress.items():
        yield Row(f"{what}: {name}: work of that alone", part, "")
    yield Row(f"{what}: system throughput", each.stp, "of a program")
    yield Row(f"{what}: fairness (Jain)", each.fairness, "")


def _sums(some: Sequence[Shown], suite: Suite) -> Iterator[Row]:
    for system in dict.fromkeys(each.system for each in some):
        of = [each for each in some if each.system == system]
        yield Row(f"{system}: mixes measured", len(of), f"of {len(suite.mixes)}")
        yield Row(f"{system}: p99 overhead, median", _median([each.overhead for each in of]), "%")
        yield Row(f"{system}: p99 overhead, worst", max(each.overhead for each in of), "%")
        yield Row(f"{system}: system throughput, median", _median([each.stp for each in of]), "of a program")
    mine = best(some)
    if mine:
        kept = sum(each.overhead <= OVERHEAD for each in mine.values())
        what = f"DetShare's better lane: mixes with a p99 overhead of at most {OVERHEAD:g} %"
        yield Row(what, kept, "mixes", len(mine), ">= 1 x baseline")
    auto = {each.mix: each for each in some if each.system == AUTO and each.mix in mine}
    if auto:
        as_good = sum(each.server.p99 <= (1 + NEAR_P99) * mine[mix].server.p99 for mix, each in auto.items())
        what = "--lane auto: mixes with a p99 within 5 % of the better lane's, or below it"
        yield Row(what, as_good, "mixes", len(auto), ">= 0.9 x baseline")
    mps = {each.mix: each for each in some if each.system == "MPS" and each.overhead > BESIDE_MPS and each.mix in mine}
    if mps:
        reached = sum(mine[mix].stp >= each.stp for mix, each in mps.items())
        what = f"where MPS's p99 overhead is above {BESIDE_MPS:g} %: mixes with at least its throughput"
        yield Row(what, reached, "mixes", len(mps), ">= 1 x baseline")
    yield from _policies(some)
    for one in against(some):
        what = f"DetShare's better lane against {one.system}, {one.figure}"
        yield Row(f"{what}: better", one.better, "mixes")
        yield Row(f"{what}: equal", one.equal, "mixes")
        yield Row(f"{what}: worse" + (f"; most: {one.first}" if one.first else ""), one.worse, "mixes")


def _policies(some: Sequence[Shown]) -> Iterator[Row]:
    """What a policy is for, beside default slicing: tokens in time, requests that keep both objectives."""
    by = {(each.mix, each.system): each for each in some}
    for way, what in ((TpotFirst.name, f"{TPOT_MISSED}: no more"), (SloAware.name, f"{GOODPUT}: no less")):
        pairs = [
            (mine, by[mix, Default.name])
            for (mix, system), mine in by.items()
            if system == way and (mix, Default.name) in by
        ]
        if pairs:
            kept = sum(
                mine.figures.get(TPOT_MISSED, 100.0) <= theirs.figures.get(TPOT_MISSED, 100.0) + NEAR_POINTS
                if way == TpotFirst.name
                else (mine.goodput or 0.0) >= (1 - NEAR_STP) * (theirs.goodput or 0.0)
                for mine, theirs in pairs
            )
            yield Row(f"{way}: mixes, {what} than under {Default.name}", kept, "mixes", len(pairs), ">= 1 x baseline")
