# SPDX-License-Identifier: Apache-2.0
"""Where a cell is played: the living programs, their classes, the interval in which they are watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from detshare.tools.bench.mix.figures import Back, Server, back, server
from detshare.tools.bench.mix.gauges import Gauge, Gauges
from detshare.tools.bench.mix.watch import Watch
from detshare.tools.bench.mix.worker import Worker, rest
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session, steal_seconds
from detshare.tools.bench.steer import SteerError

__all__ = ["SETTLE", "Played", "Stage", "Wanted"]

SETTLE = 2.0
"""seconds from the beginning of a mix to that of its interval"""
LATE = 0.3
"""seconds within which a worker prints what happened in the interval"""


@dataclass(frozen=True)
class Wanted:
    """What a program is given before it runs: its class ("": none), weight and floor (percent)."""

    klass: str
    weight: int | None = None
    floor: float | None = None
    decides: str = "hand"
    """"policy": the policy may change what was set; a person's word goes before it otherwise"""


@dataclass(frozen=True)
class Played:
    """What was seen in one interval."""

    begin: float
    end: float
    server: Server | None
    back: dict[str, Back]
    notes: tuple[str, ...] = ()
    gauge: Gauge | None = None


@dataclass
class Stage:
    """The programs by name, and the daemon that steers them."""

    session: Session
    workers: dict[str, Worker] = field(default_factory=dict)
    gpu: str | None = None
    """UUID of the GPU whose log counts; None: of each program's busiest"""
    settle: float = SETTLE
    arrivals: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """by program, what it is told besides (workloads/mix/orders.py)"""
    after: Callable[[], None] | None = None
    """called when an interval is over, while all still work"""
    lost: set[str] = field(default_factory=set)
    """programs that did not answer any more and were ended"""

    def give(self, name: str, wanted: Wanted) -> str:
        """Set class, weight and floor; in words, what had to be done instead. SteerError where it cannot be."""
        steer, pid = self.session.steer, self.workers[name].pid
        try:
            steer.verb("set-priority", pid, klass=wanted.klass, weight=wanted.weight, floor=wanted.floor)
        except SteerError as error:
            if wanted.weight is None or wanted.floor is not None or "has no argument" not in str(error):
                raise
            steer.verb("set-priority", pid, klass=wanted.klass)
            steer.verb("set-weight", pid, weight=wanted.weight)
            return f"{name}: set-priority takes no weight here: {str(error)[:160]}"
        return ""

    def release(self, names: Iterable[str]) -> None:
        """Default slicing again; nothing to release, or no daemon, is fine."""
        for name in names:
            if name in self.workers:
                try:
                    self.session.steer.release(self.workers[name].pid)
                except SteerError as error:
                    self.session.say(f"{name} was not released: {error}")

    def play(
        self,
        what: str,
        seconds: float,
        lc: str,
        backgrounds: Iterable[str],
        wanted: Mapping[str, Wanted] | None = None,
        period_ms: float = 0.0,
    ) -> Played:
        """Let the programs work, watch them for so long, and let them rest and be released again.

        :param lc: the server, "" for none; `period_ms` 0: back to back.
        :raises ProgramError, SteerError: somebody ended, did not begin, or could not be steered. All others rest.
        """
        session, names = self.session, [*([lc] if lc else []), *backgrounds]
        notes = []
        session.mark("play", what=what, programs=names)
        try:
            for name, each in (wanted or {}).items():
                if each.klass:
                    notes.append(self.give(name, each))
                if each.decides == "policy":
                    session.steer.let_decide(self.workers[name].pid)
            for name in names[::-1]:
                how = {"period_ms": period_ms} if name == lc else {}
                self.workers[name].go(**how, **self.arrivals.get(name, {}))
                self.workers[name].answered()
            time.sleep(self.settle)
            gauges = Gauges(session.steer.pid, session.mark, session.steer.threads)
            with Watch(session.steer.ps, self.gpu) as watch, gauges:
                begin, stolen = time.monotonic(), steal_seconds()
                self._pass(names, begin + seconds)
                end = time.monotonic()
                session.measured += end - begin
                session.stolen += steal_seconds() - stolen
            if self.after is not None:
                self.after()
            time.sleep(max(0.0, end + LATE - time.monotonic()))
            played = self._seen(names, lc, begin, end, watch)
            notes += list(played.notes)
            times = {"begin": round(begin, 6), "end": round(end, 6)}
            session.mark("played", what=what, **times, rotation=watch.modes, warnings=[*watch.warnings])
            said = tuple(note for note in notes if note)
            return Played(begin, end, played.server, played.back, said, gauges.seen)
        finally:
            self.calm(names, wanted is not None)

    def calm(self, names: Iterable[str], steered: bool) -> None:
        """All of these rest; who does not is ended. Released first: who is off would not come to its rest."""
        if steered:
            self.release(names)
        for worker in rest(self.session, [self.workers[name] for name in names if name in self.workers]):
            self.lost.add(worker.name)
            self.workers.pop(worker.name, None)

    def _pass(self, names: Iterable[str], until: float) -> None:
        """Let the time pass. ProgramError as soon as one of them has ended."""
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            for name in names:
                if not self.workers[name].program.alive:
                    self.workers[name].program.wait_for("(more)", 0.1)  # raises, with its last words

    def _seen(self, names: Iterable[str], lc: str, begin: float, end: float, watch: Watch) -> Played:
        found: dict[str, Back] = {}
        served, notes = None, [watch.problem]
        for name in names:
            worker = self.workers[name]
            log = watch.of(worker.pid, begin, end)
            if name == lc:
                some = worker.requests(begin, end)
                try:
                    served = server(some.latency_us, some.own_us, end - begin, some.dropped, log, some.answers)
                except ValueError as error:
                    raise ProgramError(f"{name}: {error} in {end - begin:.0f} s") from error
            else:
                late = worker.requests(begin, end).latency_us
                found[name] = back(worker.steps(begin, end), begin, end, log, late)
        return Played(begin, end, served, found, tuple(notes))
