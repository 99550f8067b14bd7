# SPDX-License-Identifier: Apache-2.0
"""field: the cells of a suite, way by way. No daemon runs before the first way that is ours.

All programs of a group of ways are started once and live through its cells. Each cell is written to
raw/SUITE-cells.jsonl as soon as it is measured; a later run goes on with it, on another machine of the same kind too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from detshare.runtime.mps import Mps
from detshare.tools.bench.field import serving
from detshare.tools.bench.field.cells import PERIOD_MS, Cell, Pace, plan
from detshare.tools.bench.field.probes.trial import Trial
from detshare.tools.bench.field.programs import PROGRAMS
from detshare.tools.bench.field.suites import Suite
from detshare.tools.bench.field.systems import ALONE, Default, System, SystemMissing
from detshare.tools.bench.field.timeline import Tape
from detshare.tools.bench.field.verdict import brief, rows
from detshare.tools.bench.mix.figures import Figure, Measured, Server, Timeline
from detshare.tools.bench.mix.run import keep
from detshare.tools.bench.mix.stage import Played, Stage, Wanted
from detshare.tools.bench.mix.store import Store
from detshare.tools.bench.mix.worker import start, warm
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError

__all__ = ["Asked", "needed_s", "run"]


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    suite: Suite
    systems: tuple[System, ...]
    patterns: tuple[str, ...] = ()
    resumed: tuple[Measured, ...] = ()
    pace: Pace = field(default_factory=Pace)
    settle: float = 0.7


def period(cell: Cell, cells: Sequence[Measured]) -> float | None:
    """Milliseconds between two requests, as its server had it alone; None: not measured yet."""
    if (stated := PROGRAMS[cell.server].arrival) is not None:
        return stated.period_ms
    name = f"{cell.server}: {ALONE}"
    return next((each.period_ms for each in cells if each.cell == name and each.server is not None), None)


def seconds(cell: Cell, asked: Asked, cells: Sequence[Measured]) -> float:
    """Of its interval, or of all that it takes alone."""
    if (probe := asked.suite.probe(cell.mix)) is not None:
        return probe.seconds
    if not cell.server:
        return asked.pace.alone * len(cell.backgrounds)
    found = asked.pace.seconds(period(cell, cells) or PERIOD_MS)
    found += asked.pace.warm if PROGRAMS[cell.server].slo is not None else 0.0
    return found + asked.pace.alone if cell.system == ALONE else found


def needed_s(cells: Sequence[Cell], asked: Asked, known: Sequence[Measured] = ()) -> float:
    """Seconds that these cells take."""
    groups = {_group(cell, asked) for cell in cells if cell.programs}  # a probe's programs are in its own time
    each = sum(seconds(cell, asked, known) + asked.pace.overhead for cell in cells)
    return each + asked.pace.start * len(groups) + asked.pace.end


def _group(cell: Cell, asked: Asked) -> str:
    return next((each.group for each in asked.systems if each.name == cell.system), "plain")


@dataclass
class Bench:
    """One run."""

    session: Session
    asked: Asked
    store: Store
    stage: Stage
    name: str = field(default_factory=lambda: time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    managed: bool = False
    tape: Tape = field(default_factory=Tape)
    silent: bool = False
    """whether it was said that there are no time lines"""
    lost: dict[str, str] = field(default_factory=dict)
    """why programs of this group did not start, by name"""
    counting: bool = False
    """whether the daemon counts launches"""

    def group(self, systems: Sequence[System], cells: Sequence[Cell]) -> None:
        """The cells of ways whose programs are the same."""
        first = systems[0]
        needs = self.asked.pace.start if any(cell.programs for cell in cells) else 0.0
        if self.session.left < needs + self.asked.pace.end:
            self.session.say(f"the budget has no room for {first.name}: {len(cells)} cells are left for --resume")
            return
        if first.daemon:
            self.manage(first.launches)
        try:
            first.begin(self.session)
            needed = dict.fromkeys(name for cell in cells for name in cell.programs)
            made = []
            for name in needed:
                program = PROGRAMS[name]
                served = program.high or any(name == mix.server for mix in self.asked.suite.mixes)
                argv, env = first.command(program.argv, served)
                if program.slo is not None:
                    env = {"DETSHARE_RUN_DIR": str(self.session.steer.run_dir), **env}
                made.append(start(self.session, name, argv, env))
            self.lost.clear()
            ready = warm(self.session, made, lost=self.lost)
            for name, worker in list(ready.items()):
                if why := first.lacks(worker.pid):
                    self.lost[name] = f"{name}: {why}"
                    self.session.drop(ready.pop(name).program)
            self.stage.workers = ready
            self.cells(systems, cells)
        except (SystemMissing, SteerError) as error:
            done = {each.cell for each in self.store.cells}
            for cell in cells:
                if cell.name not in done:
                    self._failed(cell, str(error))
        finally:
            self.session.drop(*(worker.program for worker in self.stage.workers.values()))
            self.stage.workers = {}
            first.end()

    def manage(self, launches: bool = False) -> None:
        """From here on a daemon runs, one that counts launches where that is asked for."""
        steer = self.session.steer
        if self.managed and launches != self.counting:
            steer.stop()
            steer.config, self.counting = self._config(launches), launches
            steer.start()
        elif not self.managed:
            steer.config, self.counting = self._config(launches), launches
            self.session.manage()
            self.managed = True

    def _config(self, launches: bool) -> Path | None:
        if not launches:
            return None
        path = self.session.folder / "launches.toml"
        path.write_text("[daemon]\nlaunches = true\n", encoding="utf-8")
        path.chmod(0o600)
        return path

    def cells(self, systems: Sequence[System], cells: Sequence[Cell]) -> None:
        """As many as the budget has room for."""
        by_name = {each.name: each for each in systems}
        for index, cell in enumerate(cells):
            need = seconds(cell, self.asked, self.store.cells) + self.asked.pace.overhead + self.asked.pace.end
            if self.session.left < need:
                self.session.say(f"the budget is used up: {len(cells) - index} cells are left for --resume")
                return
            system = by_name.get(cell.system)
            if system is not None and system.daemon:
                self.manage(system.launches)
            self.measure(cell, system)

    def measure(self, cell: Cell, system: System | None) -> None:
        """One cell. What stopped it is its result."""
        if not cell.programs:
            self.probe(cell, system)
            return
        missing = [name for name in cell.programs if name not in self.stage.workers]
        if missing:
            words = (self.lost.get(name, f"{name} had to be ended") for name in missing)
            self._failed(cell, "; ".join(words))
            return
        try:
            every = self._period(cell)
            wanted = self._wanted(cell, system) if system is not None else None
            length = self.asked.pace.seconds(every) if cell.server else seconds(cell, self.asked, ())
            self.stage.arrivals = {name: self._told(cell, name) for name in cell.programs}
            line: list[Timeline | None] = []
            if cell.system != ALONE:
                names = {self.stage.workers[name].pid: name for name in cell.programs}
                self.stage.after = lambda: line.append(self.tape.record(names))
            seen, figures = self.play(cell, system, length, wanted, every)
        except (ProgramError, SteerError) as error:
            self._failed(cell, str(error))
            return
        finally:
            self.stage.after = None
        timeline = next(iter(line), None)
        if timeline is None and self.tape.problem and not self.silent:
            self.silent = True
            self.session.say(f"no cell has a time line: {self.tape.problem}")
        self._add(cell, every, seen, figures, timeline)

    def play(
        self, cell: Cell, system: System | None, length: float, wanted: dict[str, Wanted] | None, every: float
    ) -> tuple[Played, tuple[Figure, ...]]:
        """A cell with programs, and figures of its engine and of its way besides. ProgramError, SteerError."""
        slo = PROGRAMS[cell.server].slo if cell.server else None
        self.stage.settle = self.asked.settle
        if slo is not None:
            self.stage.settle += self.asked.pace.warm
        if system is None or slo is None:
            seen = self.stage.play(cell.name, length, cell.server, cell.backgrounds, wanted, every)
            told: list[Figure] = []
        else:
            system.prepare(self.session, self.stage.workers[cell.server], slo)
            try:
                seen = self.stage.play(cell.name, length, cell.server, cell.backgrounds, wanted, every)
            finally:
                told, notes = system.over(self.session)
            seen = replace(seen, notes=(*seen.notes, *notes))
        if slo is not None:
            lines = self.stage.workers[cell.server].program.lines("finished")
            told = [*serving.figures(lines, seen.begin, seen.end, slo), *told]
        return seen, tuple(told)

    def probe(self, cell: Cell, system: System | None) -> None:
        """A cell without a mix."""
        probe = self.asked.suite.probe(cell.mix)
        assert probe is not None
        native = next((each.figures for each in self.store.cells if each.cell == f"{cell.mix}: {ALONE}"), ())
        known = {each.what: each for each in native}
        trial = Trial(self.session, system or Default(), system is None, known, self.asked.pace.alone)
        begin = time.monotonic()
        try:
            figures = tuple(probe.measure(trial))
        except (ProgramError, SteerError, SystemMissing) as error:
            self._failed(cell, str(error))
            return
        finally:
            trial.end()
        took, notes = time.monotonic() - begin, tuple(note[:600] for note in trial.notes)
        measured = Measured(
            cell.name, self.name, cell.mix, cell.system, (), took, None, {}, 0.0, notes, figures=figures
        )
        self.store.add(measured)
        self.session.say(brief(measured))

    def _wanted(self, cell: Cell, system: System) -> dict[str, Wanted] | None:
        """Classes: those that go before others have the server's."""
        wanted = system.wanted(cell.server, cell.backgrounds)
        if wanted is None:
            return None
        return {name: wanted[cell.server if PROGRAMS[name].high else name] for name in cell.programs}

    def _told(self, cell: Cell, name: str) -> dict[str, object]:
        """When its requests come; nothing for a program that works without a pause."""
        stated, seed = PROGRAMS[name].arrival, self.session.options.seed
        if stated is None:
            return {"poisson": seed} if name == cell.server and self.asked.suite.poisson else {}
        often: dict[str, object] = {} if name == cell.server else {"period_ms": stated.period_ms}
        return {**often, "poisson": f"{seed} {name}"} if stated.poisson else often

    def _period(self, cell: Cell) -> float:
        """Of the requests: what one takes back to back, over the load."""
        if not cell.server:
            return 0.0
        known = period(cell, self.store.cells)
        if known is not None:
            return known
        if cell.system != ALONE:
            raise ProgramError(f"{cell.server} was not measured alone")
        self.stage.arrivals = {}
        length = self.asked.pace.alone
        while (seen := self._back_to_back(cell, length)) is None:
            length *= 4  # its request takes longer
        return round(seen.p50 / 1e3 / self.asked.suite.load, 3)

    def _back_to_back(self, cell: Cell, length: float) -> Server | None:
        """None: it finished no request, and there is time for a longer try. ProgramError."""
        try:
            return self.stage.play(f"{cell.server}: back to back", length, cell.server, ()).server
        except ProgramError:
            worker = self.stage.workers.get(cell.server)
            if worker is None or not worker.program.alive or self.session.left < 8 * length:
                raise
            return None

    def _add(
        self, cell: Cell, every: float, seen: Played, figures: tuple[Figure, ...], timeline: Timeline | None
    ) -> None:
        mine = (cell.name, self.name, cell.mix, cell.system, (), seen.end - seen.begin)
        notes = seen.notes if self.managed else ()  # without a daemon all that they say is that there is none
        measured = Measured(*mine, seen.server, seen.back, every, notes, seen.gauge, figures, timeline)
        self.store.add(measured)
        self.session.say(brief(measured))

    def _failed(self, cell: Cell, why: str) -> None:
        self.session.say(f"{cell.name} failed: {why}")
        if cell.system == ALONE:  # nothing can be compared with that; a later run tries again
            self.session.mark("cell left out", cell=cell.name, why=why)
            return
        self.store.add(Measured(cell.name, self.name, cell.mix, cell.system, (), 0.0, None, {}, 0.0, (why[:600],)))


def run(session: Session, asked: Asked, cells_file: Path, tape: Tape | None = None) -> None:
    """The whole suite, or what the budget has room for."""
    store = Store(cells_file, asked.resumed)
    session.proof = "gpu"
    bench = Bench(session, asked, store, Stage(session, settle=asked.settle), tape=tape or Tape())
    cells = plan(asked.suite, asked.systems, asked.patterns, [each.cell for each in asked.resumed])
    need = needed_s(cells, asked, store.cells)
    session.say(f"{len(cells)} cells need about {need:.0f} s of the {session.options.budget:.0f} s")
    try:
        for group, some in groupby(cells, key=lambda cell: _group(cell, asked)):
            of_group = [each for each in asked.systems if each.group == group] or [Default()]
            bench.group(of_group, list(some))
    finally:
        keep(session, rows(store.cells, asked.suite))
        session.steer.stop()
        left = Mps(session.steer.run_dir / "mps")  # the spatial lane's server outlives its daemon
        if left.adopt():
            left.stop()
    if not any(cell.scheme != ALONE for cell in store.cells):
        raise ProgramError("no cell could be measured, and why was said above")
