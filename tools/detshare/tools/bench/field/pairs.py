# SPDX-License-Identifier: Apache-2.0
"""Ours against each other way, figure by figure: better, equal, worse, and where it loses first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from detshare.tools.bench.field.shown import Shown, Together, best, shown, together
from detshare.tools.bench.field.systems import ALONE, AUTO, ours
from detshare.tools.bench.mix.figures import Measured

__all__ = ["NEAR_P99", "NEAR_STP", "Against", "Pair", "against", "counted", "pairs"]

NEAR_P99, NEAR_STP = 0.05, 0.02
"""two figures that differ by no more (relative) are equal"""
NEAR_FIGURE = 0.05
MORE = ("memory had", "GPU memory that the program is told", "rate kept", "fairness", "rate with nobody")
"""figures of which more is better, besides those of a throughput"""
RATES = ("GB/s", "1/s")
DESCRIBED = ("outputs of ", "scatter with nobody", "rate lost with nobody")
"""figures that compare nothing, or what another one does too"""


@dataclass(frozen=True)
class Pair:
    """One figure of one mix, or probe. `loss`: by what part of the other's ours is worse; below 0 it is better."""

    mix: str
    figure: str
    system: str
    mine: str
    """the way of ours that is compared"""
    loss: float
    near: float

    @property
    def better(self) -> bool:
        """Beyond what counts as equal."""
        return self.loss < -self.near

    @property
    def worse(self) -> bool:
        """The same."""
        return self.loss > self.near


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


def pairs(cells: Sequence[Measured], lane: str = "") -> list[Pair]:
    """All that both have. `lane`: a way of ours; empty: the better one of each figure, by p99 where there is one."""
    return [
        *_beside(shown(cells), lane),
        *_side(together(cells), lane),
        *_probes(cells, lane),
    ]


def against(some: Sequence[Shown]) -> list[Against]:
    """Ours against each other way in what was measured beside servers. No mix is left out that both have."""
    return counted(_beside(some, ""))


def counted(some: Iterable[Pair]) -> list[Against]:
    """By way and figure."""
    found: dict[tuple[str, str], list[Pair]] = {}
    for each in some:
        found.setdefault((each.system, each.figure), []).append(each)
    made = []
    for (system, figure), of in found.items():
        worst = max(of, key=lambda each: each.loss)
        first = f"{worst.mix}, by {100 * worst.loss:.0f} %" if worst.worse else ""
        better, worse = sum(each.better for each in of), sum(each.worse for each in of)
        made.append(Against(system, figure, better, len(of) - better - worse, worse, first))
    return made


def _beside(some: Sequence[Shown], lane: str) -> Iterator[Pair]:
    mine = {each.mix: each for each in some if each.system == lane} if lane else best(some)
    for system in dict.fromkeys(each.system for each in some if not ours(each.system)):
        theirs = {each.mix: each for each in some if each.system == system}
        for mix, other in theirs.items():
            if mix in mine:
                one = mine[mix]
                yield Pair(mix, "p99", system, one.system, one.server.p99 / other.server.p99 - 1.0, NEAR_P99)
        for mix, other in theirs.items():
            if mix in mine:
                yield Pair(mix, "throughput", system, mine[mix].system, 1.0 - mine[mix].stp / other.stp, NEAR_STP)
        yield from _goodput(some, theirs, lane)


def _goodput(some: Sequence[Shown], theirs: dict[str, Shown], lane: str) -> Iterator[Pair]:
    for mix, other in theirs.items():
        mine = [
            each
            for each in some
            if each.mix == mix
            and ours(each.system)
            and each.system == (lane or each.system)
            and each.goodput is not None
        ]
        if other.goodput is not None and mine:
            one = max(mine, key=lambda each: each.goodput or 0.0)
            loss = -_gain(one.goodput or 0.0, other.goodput)
            yield Pair(mix, "goodput", other.system, one.system, loss, NEAR_STP)


def _side(some: Sequence[Together], lane: str) -> Iterator[Pair]:
    """Of programs without a server: their system throughput."""
    for other in some:
        mine = [each for each in some if each.mix == other.mix and _mine(each.system, lane)]
        if mine and not ours(other.system):
            one = max(mine, key=lambda each: each.stp)
            yield Pair(other.mix, "throughput", other.system, one.system, -_gain(one.stp, other.stp), NEAR_STP)


def _probes(cells: Sequence[Measured], lane: str) -> Iterator[Pair]:
    """Figures of cells without programs of a mix."""
    some = [cell for cell in cells if cell.scheme != ALONE and cell.server is None and not cell.back]
    for other in some:
        if ours(other.scheme):
            continue
        mine = [cell for cell in some if cell.mix == other.mix and _mine(cell.scheme, lane)]
        for theirs in other.figures:
            if theirs.what.startswith(DESCRIBED):
                continue
            sign = 1.0 if theirs.unit in RATES or theirs.what.startswith(MORE) else -1.0
            of = [(cell.scheme, each.value) for cell in mine for each in cell.figures if each.what == theirs.what]
            if of:
                way, value = max(of, key=lambda each: sign * each[1])
                ids = f" ({', '.join(theirs.ids)})" if theirs.ids else ""
                loss = -sign * _gain(value, theirs.value)
                yield Pair(
                    f"{other.mix}: {theirs.what}{ids}", "figures of probes", other.scheme, way, loss, NEAR_FIGURE
                )


def _mine(system: str, lane: str) -> bool:
    return system == lane if lane else ours(system) and system != AUTO


def _gain(mine: float, theirs: float) -> float:
    """How much more `mine` is, over the greater of both: -1 to 1."""
    most = max(abs(mine), abs(theirs))
    return (mine - theirs) / most if most else 0.0
