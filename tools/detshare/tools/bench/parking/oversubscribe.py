# SPDX-License-Identifier: Apache-2.0
"""oversubscribe: two trainings that hold 0.8 of the GPU's memory each, and a decode, beside one after the other.

Alone a training works for --seconds, a decode too; then all three do as many steps side by side, in memory turns.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.parking.room import events, full, part
from detshare.tools.bench.process import Line, Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import PLAIN, How, Lanes
from detshare.tools.bench.stats import percentile

__all__ = ["run"]

SHARE: Final = 0.8
COPY_PERCENT: Final = 10.0
JOBS: Final = {"training 1": "train", "training 2": "train", "decode": "decode"}
"""by name, its kind (workloads/job.py)"""
LANE: Final = "temporal"
DECODE_MIB: Final = 1024
LOAD_S: Final = 150.0
LEAST_S: Final = 30.0


@dataclass(frozen=True)
class Alone:
    """What a kind of job does when it has the GPU for itself. Seconds from the order to the end."""

    steps: int
    seconds: float
    sha256: str
    latencies: list[float]


def argv(kind: str, hold: int) -> list[str]:
    """The command of a job."""
    return [sys.executable, str(WORKLOADS / "job.py"), "--window", "0.2", "--kind", kind, "--hold-mib", str(hold)]


def begin(session: Session, lanes: Lanes, name: str, how: How, kind: str, hold: int) -> Program:
    """Start a job, which then waits for its order."""
    command, words = lanes.command(how, argv(kind, hold))
    return session.start(f"{name}, {how.lane}", command, words, told=True)


def latencies(program: Program) -> list[float]:
    """Microseconds of each step so far."""
    return [each for line in program.lines("window", key="t0") for each in line["latency_us"]]


def alone(session: Session, program: Program) -> Alone:
    """One that has the GPU for itself, and ends."""
    program.wait_for("loaded", LOAD_S)
    program.tell(seconds=session.options.seconds)
    line = program.wait_for("result", LOAD_S)
    session.drop(program)
    return Alone(line["steps"], line["seconds"], line["sha256"], latencies(program))


class Copies:
    """What the daemon says of parks, looked at while jobs run."""

    def __init__(self, session: Session) -> None:
        self.session, self.parks, self.seconds = session, 0, 0.0
        self._known: dict[int, tuple[int, int]] = {}

    def look(self) -> None:
        """Add what was parked and came back since the last look; a second change between two looks is counted only."""
        for program in self.session.steer.ps()["programs"]:
            parking: dict[str, Any] = program.get("parking") or {}
            pid, parks, home = int(program["pid"]), parking.get("parks", 0), parking.get("state") == "home"
            before, backs = self._known.get(pid, (0, 0))
            if parks > before:
                self.parks += parks - before
                self.seconds += parking["park_ms"] / 1e3
                self.session.mark("park", pid=pid, park_s=parking["park_ms"] / 1e3, copied=parking["copied_bytes"])
            if home and parks > backs:
                self.seconds += parking["resume_ms"] / 1e3
                backs = parks
            self._known[pid] = parks, backs


def together(session: Session, programs: dict[str, Program], copies: Copies) -> dict[str, Line]:
    """Let them work until all have finished, or the time is over; the results of those that have."""
    until = time.monotonic() + max(session.left - 20.0, LEAST_S)
    while time.monotonic() < until and not all(p.lines("result") or not p.alive for p in programs.values()):
        copies.look()
        time.sleep(0.2)
    found = {}
    for name, program in programs.items():
        try:
            found[name] = program.wait_for("result", 0.1)
        except ProgramError as problem:
            session.say(str(problem))
    return found


def report(session: Session, known: dict[str, Alone], found: dict[str, Line], copies: Copies, took: float) -> None:
    """All rows but those of the decode's latencies."""
    kinds = list(JOBS.values())
    one_by_one = sum(known[kind].seconds for kind in kinds)
    session.row("jobs that finished", len(found), "jobs", len(JOBS), "== 1 x baseline")
    differs = sum(line["sha256"] != known[JOBS[name]].sha256 for name, line in found.items())
    session.row("jobs whose results differ from alone", differs, "jobs", target="== 0")
    session.row("parks", copies.parks, "parks", target=">= 1")
    session.row("copies out and back", copies.seconds, "s")
    if len(found) == len(JOBS):
        session.row("all together", took, "s", one_by_one)
        session.row("work a second beside one after the other", one_by_one / took, "")
    for name, line in found.items():
        session.row(f"{name}: from the order to its end", line["seconds"], "s", known[JOBS[name]].seconds)


def run(session: Session) -> None:
    """The whole experiment."""
    full(session, "turns", COPY_PERCENT)
    share = part(session, len(JOBS))
    hold = int(share.mib * SHARE)
    holds = {name: hold if kind == "train" or hold < DECODE_MIB else DECODE_MIB for name, kind in JOBS.items()}
    with Lanes(session) as lanes:
        kinds = {kind: name for name, kind in JOBS.items()}
        plain = {kind: begin(session, lanes, name, PLAIN, kind, holds[name]) for kind, name in kinds.items()}
        how = How(LANE, park=True)
        programs = {name: begin(session, lanes, name, how, kind, holds[name]) for name, kind in JOBS.items()}
        known = {kind: alone(session, program) for kind, program in plain.items()}
        for name, program in programs.items():
            program.wait_for("loaded", LOAD_S)
            session.mark("job", name=name, steps=known[JOBS[name]].steps, hold_mib=holds[name])
        began, copies = time.monotonic(), Copies(session)
        for name, program in programs.items():
            program.tell(steps=known[JOBS[name]].steps)
        with events(session):
            found = together(session, programs, copies)
        report(session, known, found, copies, time.monotonic() - began)
        slow = latencies(programs["decode"])
        session.drop(*programs.values())
        if slow and (fast := known[JOBS["decode"]].latencies):
            for percent in (50, 99):
                what = f"decode: a token, p{percent}"
                session.row(what, percentile(slow, percent) / 1e3, "ms", percentile(fast, percent) / 1e3)
    share.end()
