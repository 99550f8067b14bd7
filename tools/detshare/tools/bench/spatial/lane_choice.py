# SPDX-License-Identifier: Apache-2.0
"""lane-choice: three programs in both lanes beside a background, and which lane --lane auto takes for each.

*short*: a kernel of 50 us every 2 ms, class high, beside kernels of 0.1 ms that fill the GPU, class low; judged by its
p99. *few blocks*: kernels of 2 ms with 32 blocks, so that 100 of 132 SMs are idle, beside kernels of 0.7 ms that fill
the GPU, both class normal; judged by the sum of both rates, each over its rate alone. *long*: the same with kernels of
2 ms that fill the GPU; it has no target but the choice, for the temporal lane keeps its faults apart.

Each program is started twice by --lane auto under a name of its own: the first run is watched, the second shows the
choice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import WINDOW, WORKLOADS, kernels
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.figures import Figures
from detshare.tools.bench.spatial.lanes import PLAIN, SETTLE, How, Lanes
from detshare.tools.bench.stats import latencies, rate, shares
from detshare.tools.bench.steer import SteerError

LANES = ("temporal", "spatial")
BLOCKS = 32
FEW_US, BE_US, SHORT_US, SHORT_BE_US = 2000, 687, 50, 100
WATCHED = 3.0
"""seconds of the run by which auto learns"""
LEARNED = 5.0
"""seconds within which the daemon has taken in what a program that ended showed"""


@dataclass(frozen=True)
class Kind:
    """A program, its background, their classes, and the lane that auto should take."""

    name: str
    program: tuple[str, ...]
    background: tuple[str, ...]
    classes: tuple[str, str]
    lane: str
    watched: tuple[str, ...] = ()
    """more words of the run that is watched"""


def kinds(session: Session) -> tuple[Kind, ...]:
    """All three, calibrated on the idle GPU."""
    periodic = str(session.calibrate(SHORT_US, "periodic")[0])
    count, us = session.calibrate(BE_US)
    filling = {wanted: str(max(1, round(count * wanted / us))) for wanted in (SHORT_BE_US, BE_US, FEW_US)}
    # one block on an SM goes through its work faster than the eight that fill it
    few, took = session.calibrate(FEW_US, "periodic")
    few = max(1, round(few * FEW_US / took))
    full = ("saturate", "--depth", "4", "--iterations")
    # requests come faster in the run that is watched: one launch in 256 is timed
    return (
        Kind(
            "short",
            ("periodic", "--period-ms", "2", "--iterations", periodic),
            (*full, filling[SHORT_BE_US]),
            ("high", "low"),
            "spatial",
            ("--period-ms", "0.1"),
        ),
        Kind(
            "few blocks",
            (*full, str(few), "--sms", str(BLOCKS), "--per-sm", "1"),
            (*full, filling[BE_US]),
            ("normal", "normal"),
            "spatial",
        ),
        Kind("long", (*full, filling[FEW_US]), (*full, filling[BE_US]), ("normal", "normal"), "temporal"),
    )


@dataclass
class Choice:
    """One run of the experiment."""

    session: Session
    lanes: Lanes
    found: Figures

    def _slot(self, key: tuple[str, ...], program: Program, background: Program | None) -> None:
        beside = [background] if background is not None else []
        seconds = self.session.options.seconds
        slot = self.session.slot(" ".join(key), seconds, program, *beside, settle=SETTLE)
        self.found.latencies(key, latencies(slot.windows[program.name]))
        for name, one in zip(("program", "background"), (program, *beside), strict=False):
            windows = slot.windows[one.name]
            self.found.rate((*key, name), rate(windows) if windows else 0.0)

    def alone(self, kind: Kind) -> None:
        """Either by itself, without DetShare."""
        for name, words in (("program", kind.program), ("background", kind.background)):
            program = self.lanes.start(f"{kind.name}: {name} alone", PLAIN, kernels(*words))
            self.lanes.ready(program)
            self._slot((kind.name, "alone", name), program, None)
            self.lanes.drop(program)

    def lane(self, kind: Kind, lane: str) -> None:
        """Both in one lane."""
        mine, other = (How(lane, klass=klass) for klass in kind.classes)
        background = self.lanes.start(f"{kind.name}: background, {lane}", other, kernels(*kind.background))
        program = self.lanes.start(f"{kind.name}: {lane}", mine, kernels(*kind.program))
        self.lanes.ready(background, program)
        self._slot((kind.name, lane), program, background)
        self.lanes.drop(program, background)

    def auto(self, kind: Kind) -> str:
        """What auto takes for the program at its second run."""
        script = self.session.folder / f"{kind.name.replace(' ', '-')}.py"
        script.symlink_to(WORKLOADS / "kernels.py")
        argv = [sys.executable, str(script), "--window", str(WINDOW), *kind.program]
        taken = self._auto(kind, [*argv, *kind.watched])
        if taken != "temporal":
            raise SteerError(f"{kind.name}: auto took the {taken} lane for a command that it did not know")
        return self._auto(kind, argv)

    def _auto(self, kind: Kind, argv: Sequence[str]) -> str:
        program = self.lanes.start(f"{kind.name}: auto", How("auto"), argv)
        self.lanes.ready(program)
        time.sleep(WATCHED)
        shown = self.session.steer.program(program.pid)
        lane = "spatial" if shown is not None and shown.get("spatial") else "temporal"
        self.session.mark("auto", kind=kind.name, lane=lane, said=program.last_words())
        before = self._learned()
        self.lanes.drop(program)
        until = time.monotonic() + LEARNED
        while lane == "temporal" and self._learned() == before and time.monotonic() < until:
            time.sleep(0.05)
        return lane

    def _learned(self) -> bytes:
        path = Path(self.session.steer.run_dir) / "profiles.json"
        return path.read_bytes() if path.exists() else b""

    def both_rates(self, kind: Kind, lane: str) -> float:
        """The sum of both rates, each over its rate alone."""
        names = ("program", "background")
        shared = [self.found.median((kind.name, lane, name), "rate") for name in names]
        alone = [self.found.median((kind.name, "alone", name, "program"), "rate") for name in names]
        return sum(shares(shared, alone))

    def report(self, kind: Kind, taken: str) -> None:
        """All rows of one program."""
        p99 = {lane: self.found.median((kind.name, lane), "p99") for lane in LANES if self.found.has((kind.name, lane))}
        rates = {lane: self.both_rates(kind, lane) for lane in LANES}
        judged = "< 1 x baseline" if kind.name == "short" else None
        if p99:
            alone = self.found.median((kind.name, "alone", "program"), "p99")
            self.session.row(f"{kind.name}: alone: p99", alone, "us")
            self.session.row(f"{kind.name}: temporal lane: p99", p99["temporal"], "us")
            self.session.row(f"{kind.name}: spatial lane: p99", p99["spatial"], "us", p99["temporal"], judged)
        judged = "> 1 x baseline" if kind.name == "few blocks" else None
        self.session.row(f"{kind.name}: temporal lane: both rates over alone", rates["temporal"], "of alone")
        what = f"{kind.name}: spatial lane: both rates over alone"
        self.session.row(what, rates["spatial"], "of alone", rates["temporal"], judged)
        right = int(taken == kind.lane)
        self.session.row(f"{kind.name}: --lane auto took the {kind.lane} lane", right, "times", target="== 1")


def run(session: Session) -> None:
    """The whole experiment."""
    figures: dict[str, dict[str, float]] = {}
    chosen = kinds(session)
    with Lanes(session) as lanes:
        choice = Choice(session, lanes, Figures())
        for kind in chosen:
            choice.alone(kind)
            for lane in LANES:
                choice.lane(kind, lane)
            choice.report(kind, choice.auto(kind))
            figures[f"{kind.name}: both rates"] = {lane: choice.both_rates(kind, lane) for lane in LANES}
    plot.bars(session.options.out / "lane-choice.png", figures, "")
