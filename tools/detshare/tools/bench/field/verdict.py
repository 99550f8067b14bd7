# SPDX-License-Identifier: Apache-2.0
"""What the cells of a suite say: overheads, throughput, who is better against whom, and the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from detshare.tools.bench.field.cells import failed
from detshare.tools.bench.field.policies import SloAware, TpotFirst
from detshare.tools.bench.field.serving import GOODPUT, TPOT_MISSED
from detshare.tools.bench.field.suites import Suite, taking_part
from detshare.tools.bench.field.systems import ALONE, AUTO, Default, ours
from detshare.tools.bench.mix.figures import Measured, Server
from detshare.tools.bench.stats import jain
from detshare.tools.results import Row

__all__ = ["OVERHEAD", "Against", "Shown", "Together", "against", "brief", "rows", "shown", "together"]

OVERHEAD = 7.2
"""percent: the p99 overhead that Tally's authors publish for theirs"""
NEAR_P99, NEAR_STP = 0.05, 0.02
"""two figures that differ by no more (relative) are equal"""
NEAR_POINTS = 1.0
"""the same of percentages"""
NOTHING = ("changed outputs", "GPU memory left", "processes left", "newcomers refused")
"""figures of ours that are to be 0"""
BESIDE_MPS = 50.0
"""percent of p99 overhead of MPS above which its throughput is to be reached"""


@dataclass(frozen=True)
class Shown:
    """A cell beside what its programs did alone."""

    mix: str
    system: str
    server: Server
    alone: Server
    progress: dict[str, float]
    """each program's work over that alone; the server's: requests that it finished over those that were due"""
    late: dict[str, tuple[float, float]] = field(default_factory=dict)
    """p99 of each other program that answers requests, and that alone, us"""
    figures: dict[str, float] = field(default_factory=dict)
    """what else was measured of the server, by name"""

    @property
    def goodput(self) -> float | None:
        """Of a serving engine, requests/s that kept both objectives."""
        return next((value for what, value in self.figures.items() if what.startswith(GOODPUT)), None)

    @property
    def changed(self) -> int | None:
        """Answers that differ from those alone; None where the server does not tell its answers."""
        if not self.server.answers or not self.alone.answers:
            return None
        return sum(count for digest, count in self.server.answers.items() if digest not in self.alone.answers)

    @property
    def overhead(self) -> float:
        """Percent of p99 over alone."""
        return 100.0 * (self.server.p99 / self.alone.p99 - 1.0)

    @property
    def stp(self) -> float:
        """System throughput: the sum of all progress (Eyerman and Eeckhout, 2008)."""
        return sum(self.progress.values())

    @property
    def fairness(self) -> float:
        """Jain's index of the progress, 1/n to 1."""
        return jain(list(self.progress.values()))


def shown(cells: Sequence[Measured]) -> list[Shown]:
    """All that were measured beside a server that was measured alone, and backgrounds too."""
    alone = {each.mix: each for each in cells if each.scheme == ALONE}
    found = []
    for cell in cells:
        server = taking_part(cell.mix)[0]
        known = alone.get(server)
        if cell.scheme == ALONE or cell.server is None or known is None or known.server is None:
            continue
        if not all(name in alone and alone[name].back[name].rate for name in cell.back):
            continue
        progress = {server: cell.server.rate / known.server.rate}
        progress |= {name: one.rate / alone[name].back[name].rate for name, one in cell.back.items()}
        late = {
            name: (one.p99, alone[name].back[name].p99 or 0.0) for name, one in cell.back.items() if one.p99 is not None
        }
        figures = {each.what: each.value for each in cell.figures}
        found.append(Shown(cell.mix, cell.scheme, cell.server, known.server, progress, late, figures))
    return found


@dataclass(frozen=True)
class Together:
    """Programs without a server, side by side: what each did of its work alone."""

    mix: str
    system: str
    progress: dict[str, float]

    @property
    def stp(self) -> float:
        """System throughput."""
        return sum(self.progress.values())


def together(cells: Sequence[Measured]) -> list[Together]:
    """All cells of several backgrounds and no server, each of which was measured alone."""
    alone = {each.mix: each.back[each.mix].rate for each in cells if each.scheme == ALONE and each.mix in each.back}
    return [
        Together(cell.mix, cell.scheme, {name: one.rate / alone[name] for name, one in cell.back.items()})
        for cell in cells
        if cell.server is None and len(cell.back) > 1 and all(alone.get(name) for name in cell.back)
    ]


@dataclass(frozen=True)
class Against:
    """In how many mixes ours is better, equal, worse than another way."""

    system: str
    figure: str
    better: int
    equal: int
    worse: int
    first: str
    """where ours loses most; empty: nowhere"""


def best(some: Sequence[Shown]) -> dict[str, Shown]:
    """By mix, the better of our lanes by its p99."""
    found: dict[str, Shown] = {}
    for each in some:
        lane = ours(each.system) and each.system != AUTO
        if lane and (each.mix not in found or each.server.p99 < found[each.mix].server.p99):
            found[each.mix] = each
    return found


def against(some: Sequence[Shown]) -> list[Against]:
    """Ours against each other way, by p99 and by throughput. No mix is left out that both have."""
    mine, found = best(some), []
    for system in dict.fromkeys(each.system for each in some if not ours(each.system)):
        theirs = {each.mix: each for each in some if each.system == system}
        both = [mix for mix in theirs if mix in mine]
        p99 = {mix: mine[mix].server.p99 / theirs[mix].server.p99 - 1.0 for mix in both}
        stp = {mix: 1.0 - mine[mix].stp / theirs[mix].stp for mix in both}
        compared = [("p99", p99, NEAR_P99), ("throughput", stp, NEAR_STP)]
        if good := _goodput(some, theirs):
            compared.append(("goodput", good, NEAR_STP))
        for figure, loss, near in compared:
            worst = max(loss, key=lambda mix: loss[mix], default="")
            first = f"{worst}, by {100 * loss[worst]:.0f} %" if worst and loss[worst] > near else ""
            better, worse = (sum(sign * each > near for each in loss.values()) for sign in (-1, 1))
            found.append(Against(system, figure, better, len(loss) - better - worse, worse, first))
    return found


def _goodput(some: Sequence[Shown], theirs: dict[str, Shown]) -> dict[str, float]:
    """By mix, which part of their goodput ours lacks in its best way; below 0: it has more."""
    found = {}
    for mix, each in theirs.items():
        mine = max((one.goodput or 0.0 for one in some if one.mix == mix and ours(one.system)), default=None)
        if each.goodput is not None and mine is not None:
            most = max(each.goodput, mine)
            found[mix] = (each.goodput - mine) / most if most else 0.0
    return found


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
