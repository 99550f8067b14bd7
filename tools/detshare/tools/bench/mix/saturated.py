# SPDX-License-Identifier: Apache-2.0
"""mix-saturated: a server that leaves no useful gaps, back to back or every 1.2 times its own time, and floors.

With a floor of F percent the server is to keep 1 - F - 2 % of what it does alone, and the background is to work for
F percent of the time, in whole windows, within one point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from detshare.tools.bench.mix.figures import Back, Server
from detshare.tools.bench.mix.run import END, START, keep
from detshare.tools.bench.mix.stage import LATE, SETTLE, Played, Stage, Wanted
from detshare.tools.bench.mix.worker import command, start, warm
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError
from detshare.tools.results import Row

__all__ = ["BACKS", "FLOORS", "Case", "cases", "needed_s", "report", "run"]

FLOORS = (0, 2, 5, 10)
"""percent of the time"""
BACKS = (("vit",), ("vit", "gpt2"))
SERVER = "graph"
SPACING = 1.2
"""a request is due every so many times its own time"""
DEFAULT = "default slicing"
ALONE_SECONDS = 3.0


@dataclass(frozen=True)
class Case:
    """`floor` None: default slicing. `spaced`: a request every 1.2 times its time, else back to back."""

    spaced: bool
    backs: tuple[str, ...] = ()
    floor: int | None = None

    @property
    def pace(self) -> str:
        """In words."""
        return f"every {SPACING:g} x its time" if self.spaced else "back to back"

    @property
    def name(self) -> str:
        """What its rows begin with."""
        if not self.backs:
            return f"{SERVER} {self.pace}: alone"
        how = DEFAULT if self.floor is None else f"floor {self.floor} %"
        return f"{SERVER} {self.pace} + {' + '.join(self.backs)}: {how}"


def cases(quick: bool = False) -> list[Case]:
    """All that are measured with a background, in the order of their worth."""
    found = []
    for backs in BACKS[:1] if quick else BACKS:
        for spaced in (False, True):
            for floor in (2, 10) if quick else (2, 0, 5, 10):
                found.append(Case(spaced, backs, floor))
            found.append(Case(spaced, backs))
    return found


def needed_s(some: list[Case], seconds: float) -> float:
    """Seconds for these, what is measured alone, and all starts and ends."""
    alone = 2 * seconds + 2 * ALONE_SECONDS
    return START + END + alone + len(some) * seconds + (len(some) + 4) * (SETTLE + LATE + 0.5)


def rows(case: Case, seen: Played, alone: Server, backs: dict[str, Back]) -> Iterator[Row]:
    """What a case shows. `alone`: the server at the same pace; `backs`: each background alone."""
    assert seen.server is not None
    mine, floor = seen.server, case.floor
    share = None if floor is None else floor / 100
    target = None if share is None else f">= {1 - share - 0.02:.6g} x baseline"
    yield Row(f"{case.name}: requests", mine.rate, "requests/s", alone.rate, target)
    yield Row(f"{case.name}: p50", mine.own_p50, "us", alone.own_p50)
    yield Row(f"{case.name}: p99 of {mine.count} requests", mine.p99, "us", alone.p99)
    if mine.dropped:
        yield Row(f"{case.name}: requests dropped so far, a second late", mine.dropped, "requests")
    steps = sum(one.rate / backs[name].rate for name, one in seen.back.items() if backs[name].rate)
    yield Row(f"{case.name}: background's work, by steps against alone", 100 * steps, "% of the time")
    useful = [one.useful for one in seen.back.values()]
    if None not in useful:
        got = 100 * sum(each for each in useful if each is not None)
        yield Row(f"{case.name}: background's useful time, by the log", got, "% of the time")
        if floor is not None:
            what = f"{case.name}: distance of that from the floor"
            yield Row(what, abs(got - floor), "points", None, "<= 1")
    gap = max(one.gap_s for one in seen.back.values())
    yield Row(f"{case.name}: longest without progress", gap, "s")


def report(session: Session, case: Case, seen: Played, alone: Server, backs: dict[str, Back]) -> None:
    """Keep the rows of a case, and say the main ones."""
    made = list(rows(case, seen, alone, backs))
    keep(session, made)
    session.say("; ".join(f"{row.what.removeprefix(case.name + ': ')} {row.value:.5g} {row.unit}" for row in made[:6]))


def run(session: Session, quick: bool) -> None:
    """The whole experiment."""
    seconds, some = session.options.seconds, cases(quick)
    session.say(f"{len(some)} cases need about {needed_s(some, seconds):.0f} s of the {session.options.budget:.0f} s")
    session.manage()
    names = (SERVER, *dict.fromkeys(name for case in some for name in case.backs))
    stage = Stage(session, warm(session, [start(session, name, command(name)) for name in names]))
    if SERVER not in stage.workers:
        raise ProgramError(f"{SERVER} did not start, so nothing can be measured")
    own = stage.play(f"{SERVER}: back to back: alone", seconds, SERVER, ()).server
    assert own is not None
    period = SPACING * own.own_p50 / 1000
    spaced = stage.play(f"{SERVER}: spaced: alone", seconds, SERVER, (), None, period).server
    assert spaced is not None
    alone = {False: own, True: spaced}
    for paced, one in alone.items():
        case = Case(paced)
        kept = [Row(f"{case.name}: requests", one.rate, "requests/s"), Row(f"{case.name}: p99", one.p99, "us")]
        keep(session, [*kept, Row(f"{case.name}: p50", one.own_p50, "us")])
    backs: dict[str, Back] = {}
    for name in names[1:]:
        if name in stage.workers:
            backs[name] = stage.play(f"{name}: alone", ALONE_SECONDS, "", [name]).back[name]
    left_out = 0
    for index, case in enumerate(some):
        if session.left < seconds + SETTLE + END:
            session.say(f"the budget is used up: {len(some) - index} cases are left out")
            left_out += len(some) - index
            break
        try:
            seen = _play(stage, case, seconds, period)
        except (ProgramError, SteerError, KeyError) as error:
            session.say(f"left out: {case.name}: {error}")
            left_out += 1
            if SERVER not in stage.workers:
                break
            continue
        report(session, case, seen, alone[case.spaced], backs)
    session.row("cases left out for a reason that was said", left_out, "cases")


def _play(stage: Stage, case: Case, seconds: float, period: float) -> Played:
    wanted = None
    if case.floor is not None:
        # the floor is of all the background together: each program's part is by weight
        wanted = {SERVER: Wanted("high")} | {name: Wanted("low", floor=case.floor) for name in case.backs}
    return stage.play(case.name, seconds, SERVER, case.backs, wanted, period if case.spaced else 0.0)
