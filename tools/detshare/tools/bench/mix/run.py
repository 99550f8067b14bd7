# SPDX-License-Identifier: Apache-2.0
"""mix: a server beside one to four backgrounds, under DetShare in three weightings and under what there is without.

Every program is started once and lives through all cells, those of an MPS mode through its cells; who takes no part in
a cell rests, with its context and its memory. Each cell is written to raw/NAME-cells.jsonl as soon as it is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from detshare.ctl.core.errors import ControlError
from detshare.runtime.mps import Mps
from detshare.tools.bench.mix.cells import ALONE, MPS_PRIORITY, MPS_SHARES, OURS, Cell, chosen, plan
from detshare.tools.bench.mix.figures import Measured
from detshare.tools.bench.mix.stage import LATE, SETTLE, Stage, Wanted
from detshare.tools.bench.mix.store import Store
from detshare.tools.bench.mix.verdict import rows
from detshare.tools.bench.mix.worker import BACKGROUNDS, SERVERS, command, start, warm
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError
from detshare.tools.results import Row

__all__ = ["Asked", "brief", "keep", "needed_s", "run"]

START = 40.0
"""seconds in which all programs of a phase import, build and warm up"""
ALONE_SECONDS = 4.0
"""of a background alone, at most"""
SHARE_PERCENT = 25
"""of the SMs for each background under MPS with shares; the server has no limit"""
END = 15.0
"""seconds that are kept for ending all programs"""


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    seconds: float = 21.0
    period_ms: float = 20.0
    quick: bool = False
    patterns: tuple[str, ...] = ()
    resumed: tuple[Measured, ...] = ()
    available: tuple[str, ...] = (*SERVERS, *BACKGROUNDS)
    settle: float = SETTLE

    @property
    def overhead(self) -> float:
        """Seconds of a cell besides its interval: the beginning, late lines, classes, and coming to rest."""
        return self.settle + LATE + 0.7


def length(cell: Cell, asked: Asked) -> float:
    """Seconds of its interval."""
    return asked.seconds if cell.server else min(asked.seconds, ALONE_SECONDS)


def phase(cell: Cell) -> str:
    """Which programs it needs: those of an MPS mode, or "" for plain ones."""
    return cell.scheme if cell.scheme in (MPS_PRIORITY, MPS_SHARES) else ""


def needed_s(cells: Sequence[Cell], asked: Asked) -> float:
    """Seconds that these cells will take."""
    phases = {phase(cell) for cell in cells}
    return sum(length(cell, asked) + asked.overhead for cell in cells) + START * len(phases) + END


def environment(mps: Mps, scheme: str, name: str) -> dict[str, str]:
    """What makes a program a client of that MPS server in that mode."""
    found = dict(mps.environment)
    if name in SERVERS:
        return {**found, "CUDA_MPS_CLIENT_PRIORITY": "0"} if scheme == MPS_PRIORITY else found
    if scheme == MPS_PRIORITY:
        return {**found, "CUDA_MPS_CLIENT_PRIORITY": "1"}
    return {**found, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(SHARE_PERCENT)}


@dataclass
class Bench:
    """One run."""

    session: Session
    asked: Asked
    store: Store
    stage: Stage
    left_out: list[str] = field(default_factory=list)
    name: str = field(default_factory=lambda: time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))

    def begin(self, kinds: Sequence[str], env: Mapping[str, Mapping[str, str]]) -> None:
        """Start programs side by side and wait until those that can are warm."""
        started = [start(self.session, kind, command(kind), env.get(kind)) for kind in kinds]
        self.stage.workers = warm(self.session, started)

    def end(self) -> None:
        """End all programs of a phase."""
        self.session.drop(*(worker.program for worker in self.stage.workers.values()))
        self.stage.workers = {}

    def measure(self, cell: Cell) -> None:
        """One cell; what stopped it is said, and the others go on."""
        missing = [name for name in cell.programs if name not in self.stage.workers]
        if missing:
            self._leave(cell, f"{', '.join(missing)} did not start or had to be ended")
            return
        wanted = None
        if cell.scheme == OURS:
            wanted = {cell.server: Wanted("high")} if cell.server else {}
            equal = len(set(cell.weights)) == 1
            for name, weight in zip(cell.backgrounds, cell.weights, strict=True):
                wanted[name] = Wanted("low", None if equal else weight)
        seconds, period = length(cell, self.asked), self.asked.period_ms if cell.server else 0.0
        try:
            seen = self.stage.play(cell.name, seconds, cell.server, cell.backgrounds, wanted, period)
        except (ProgramError, SteerError) as error:
            self._leave(cell, str(error))
            return
        measured = Measured(
            cell.name,
            self.name,
            cell.mix,
            cell.scheme,
            cell.weights,
            seen.end - seen.begin,
            seen.server,
            seen.back,
            period,
            seen.notes,
            seen.gauge,
        )
        self.store.add(measured)
        self.session.say(brief(measured))

    def _leave(self, cell: Cell, why: str) -> None:
        self.left_out.append(f"{cell.name}: {why}")
        self.session.say(f"left out: {cell.name}: {why}")
        self.session.mark("cell left out", cell=cell.name, why=why)

    def cells(self, cells: Sequence[Cell]) -> None:
        """As many as the budget has room for."""
        for index, cell in enumerate(cells):
            if self.session.left < length(cell, self.asked) + self.asked.overhead + END:
                self.session.say(f"the budget is used up: {len(cells) - index} cells are left for --resume")
                return
            self.measure(cell)


def brief(cell: Measured) -> str:
    """A cell in one line, for whoever waits."""
    words = [cell.cell + ":"]
    if cell.server is not None:
        words.append(f"p50 {cell.server.p50:.0f} p99 {cell.server.p99:.0f} us ({cell.server.count})")
        if cell.server.share is not None:
            words.append(f"share {cell.server.share:.3f}")
    for name, one in cell.back.items():
        log = "" if one.useful is None else f" useful {one.useful:.3f}"
        words.append(f"| {name} {one.rate:.2f}/s gap {one.gap_s:.2f} s{log}")
    return " ".join([*words, *(f"({note})" for note in cell.notes)])


def keep(session: Session, some: Iterable[Row]) -> None:
    """Keep rows without a line for each: a mix has hundreds."""
    for row in some:
        baseline = None if row.baseline is None else float(f"{row.baseline:.6g}")
        session.rows.append(replace(row, value=float(f"{row.value:.6g}"), baseline=baseline))


def run(session: Session, asked: Asked, cells_file: Path) -> None:
    """The whole experiment."""
    store = Store(cells_file, asked.resumed)
    bench = Bench(session, asked, store, Stage(session, settle=asked.settle))
    done = [each.cell for each in asked.resumed]
    cells = chosen(plan(asked.available, asked.quick), asked.patterns, done)
    session.say(f"{len(cells)} cells need about {needed_s(cells, asked):.0f} s of the {session.options.budget:.0f} s")
    session.manage()
    try:
        plain = [cell for cell in cells if not phase(cell)]
        if plain:
            needed = [name for name in (*SERVERS, *BACKGROUNDS) if any(name in cell.programs for cell in plain)]
            bench.begin(needed, {})
            here = [name for name in asked.available if name not in needed or name in bench.stage.workers]
            if len(here) < len(asked.available):  # other mixes, of those that are here
                cells = chosen(plan(here, asked.quick), asked.patterns, done)
            bench.cells([cell for cell in cells if not phase(cell)])
            bench.end()
        for scheme in (MPS_PRIORITY, MPS_SHARES):
            of_mps(bench, [cell for cell in cells if phase(cell) == scheme], scheme)
    finally:
        keep(session, rows(store))
        session.row("cells left out for a reason that was said", len(bench.left_out), "cells")
    if not any(cell.scheme != ALONE for cell in store.cells):
        raise ProgramError(f"no cell could be measured: {'; '.join(bench.left_out)[:1500] or 'none was asked for'}")


def of_mps(bench: Bench, cells: Sequence[Cell], scheme: str) -> None:
    """The cells of one MPS mode, with programs of its own."""
    session = bench.session
    if not cells:
        return
    if session.left < START + length(cells[0], bench.asked) + bench.asked.overhead + END:
        session.say(f"the budget has no room for {scheme}: {len(cells)} cells are left for --resume")
        return
    mps = Mps(session.folder / ("mps1" if scheme == MPS_PRIORITY else "mps2"))
    try:
        mps.start()
    except ControlError as error:
        session.say(f"left out: {scheme}: no MPS server: {error}")
        session.mark("left out", name=scheme, why=str(error))
        return
    try:
        needed = [name for name in (*SERVERS, *BACKGROUNDS) if any(name in cell.programs for cell in cells)]
        bench.begin(needed, {name: environment(mps, scheme, name) for name in needed})
        bench.cells(cells)
    finally:
        bench.end()
        mps.stop()
