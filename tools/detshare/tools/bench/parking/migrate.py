# SPDX-License-Identifier: Apache-2.0
"""migrate: held memory, a decode and a training moved between two GPUs and back by `detshare-ctl migrate`.

Two ways. Programs *under the library* (`detshare run --park`) are parked by it, and the driver's checkpoint moves the
rest; the others are the driver's checkpoint's alone, which takes them by their PID. Rounds are moves there and back of
each job; the held memory has a tenth of them. Parts that an earlier run measured are taken over from its result.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from detshare.tools import results
from detshare.tools.bench.parking import holder
from detshare.tools.bench.parking.holder import Holder
from detshare.tools.bench.parking.oversubscribe import LOAD_S, argv
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.steer import SteerError

__all__ = ["run"]

SIZE_MIB: Final = 8192
HOLD_MIB: Final = 1024
"""of each job"""
KINDS: Final = ("decode", "train")
LONGEST_S: Final = 120.0
"""a move of 8 GiB takes the driver some 7 s (a checkpoint and a restore on an H100)"""
REST_S: Final = 0.1
"""between two moves of a job, so that it gets on"""
SLACK: Final = 2.0
"""a job has steps for so much longer than its rests: it also works until its work is locked"""
LEAST_S: Final = 60.0


@dataclass(frozen=True)
class Way:
    """How a program is started, and so who moves it; `named`: in rows, after what was moved."""

    name: str
    named: str
    park: bool


WAYS: Final = (Way("library", ", under the library", True), Way("driver", "", False))
"""the second by the driver's checkpoint alone"""
MEMORY: Final = "memory"


@dataclass(frozen=True)
class Part:
    """What is moved in one way: held memory or a job."""

    way: Way
    kind: str

    @property
    def name(self) -> str:
        """What --part calls it."""
        return f"{self.way.name}-{self.kind}"

    @property
    def title(self) -> str:
        """What its rows begin with."""
        return f"{f'{SIZE_MIB / 1024:g} GiB' if self.kind == MEMORY else self.kind}{self.way.named}"

    def measured(self, session: Session) -> bool:
        """Whether it has its rows."""
        return any(row.what.startswith(f"{self.title}: ") for row in session.rows)


class Mover:
    """One program, and what its moves took. SteerError where one fails."""

    def __init__(self, session: Session, pid: int, gpus: Sequence[dict[str, Any]]) -> None:
        self._session, self._pid, self._gpus = session, pid, gpus
        self._at = 0
        self.seconds: list[float] = []
        """what was last to come back took: all of it by the driver, the memory by the library"""
        self.waited: list[float] = []
        """from the command until the program runs again"""

    def until_parkable(self) -> None:
        """Wait until its library has memory to park. SteerError where it gets none."""
        self._wait(lambda parking: bool(parking.get("parkable_bytes")), "has nothing to park")

    def move(self) -> None:
        """To the other GPU."""
        there = self._gpus[1 - self._at]
        began = time.monotonic()
        self._session.steer.verb("migrate", self._pid, gpu=there["uuid"])
        parking = self._wait(lambda parking: parking["state"] == "home", "is not back")
        program = self._program()
        if program["gpus"] != [there["uuid"]]:
            raise SteerError(f"PID {self._pid} was not moved: {'; '.join((*program['notes'], *self._told()))}")
        self._at = 1 - self._at
        self.seconds.append(parking["resume_ms"] / 1000)
        self.waited.append(time.monotonic() - began)
        self._session.mark("moved", pid=self._pid, to=there["uuid"], seconds=self.waited[-1], told=self._told()[-1:])

    def _wait(self, true: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        until = time.monotonic() + LONGEST_S
        while not true(parking := self._program().get("parking") or {"state": "home"}):
            if time.monotonic() > until:
                raise SteerError(f"PID {self._pid} {what} after {LONGEST_S:g} s: {parking}")
            time.sleep(0.01)
        return parking

    def _program(self) -> dict[str, Any]:
        found = self._session.steer.program(self._pid)
        if found is None:
            raise SteerError(f"ps has no PID {self._pid}")
        return found

    def _told(self) -> list[str]:
        events = self._session.steer.client.events()
        return [str(each["text"]) for each in events if each["pid"] == self._pid and each["kind"] == "park"]


def twins(session: Session) -> list[dict[str, Any]]:
    """Two GPUs of one chip. ProgramError where there are none."""
    gpus = session.steer.ps().get("gpus") or []
    found = [gpu for gpu in gpus if gpu["name"] == gpus[0]["name"]]
    if len(found) < 2:
        raise ProgramError(f"this machine has {len(gpus)} GPU(s); a move needs two of one chip")
    return found[:2]


def memory(session: Session, gpus: Sequence[dict[str, Any]], way: Way, rounds: int, until: float) -> None:
    """So many GiB that stand still, compared after each move, until so many seconds are left."""
    held = Holder(session, SIZE_MIB, park=way.park)
    try:
        mover, differs = Mover(session, held.program.pid, gpus), 0
        for _ in range(2 * rounds):
            if session.left < until:
                break
            mover.move()
            differs += not held.same()
            held.write(16, len(mover.seconds))
        size = Part(way, MEMORY).title
        session.row(f"{size}: moves", len(mover.seconds), "", target=f">= {2 * rounds}")
        if mover.seconds:
            driver, whole = percentile(mover.seconds, 50), percentile(mover.waited, 50)
            if not way.park:
                session.row(f"{size}: a move, by the driver: p50", driver, "s", target="<= 2")
            session.row(f"{size}: from the command until it runs: p50", whole, "s", target="<= 2" if way.park else None)
        session.row(f"{size}: moves after which memory differed", differs, "", target="== 0")
    finally:
        held.end()


def _job(session: Session, name: str, kind: str, park: bool = False, gpu: int = 0) -> Program:
    command = argv(kind, HOLD_MIB)
    if park:
        run = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(session.steer.run_dir)]
        command = [*run, "--lane", holder.LANE, "--park", "--", *command]
    program = session.start(f"{kind}, {name}", command, {"CUDA_VISIBLE_DEVICES": str(gpu)} if gpu else {}, told=True)
    program.wait_for("loaded", LOAD_S)
    return program


def alone(session: Session, kinds: Sequence[str], rounds: int) -> dict[str, dict[str, Any]]:
    """What each job gives that nobody moves, on a GPU of its own."""
    jobs = {kind: _job(session, "alone", kind, gpu=gpu) for gpu, kind in enumerate(kinds)}
    seconds = max(session.options.seconds, SLACK * 2 * rounds * REST_S)
    for plain in jobs.values():
        plain.tell(seconds=seconds)
    known = {kind: plain.wait_for("result", LOAD_S + seconds) for kind, plain in jobs.items()}
    session.drop(*jobs.values())
    return known


def job(
    session: Session, gpus: Sequence[dict[str, Any]], part: Part, known: dict[str, Any], rounds: int, until: float
) -> None:
    """One that works while it is moved to and fro; its result beside that of one left alone."""
    way = part.way
    program = _job(session, f"moved{way.named}", part.kind, way.park)
    mover = Mover(session, program.pid, gpus)
    if way.park:
        mover.until_parkable()
    program.tell(steps=known["steps"])
    program.ready()  # a stream that is captured into a graph cannot be parked
    while len(mover.seconds) < 2 * rounds and not program.lines("result"):
        if not program.alive or session.left < until:
            break
        mover.move()
        time.sleep(REST_S)
    found = program.wait_for("result", LOAD_S + SLACK * known["seconds"])
    session.drop(program)
    session.row(f"{part.title}: moves while it worked", len(mover.seconds), "", target=f">= {2 * rounds}")
    if mover.waited:
        whole = percentile(mover.waited, 50)
        session.row(f"{part.title}: from the command until it runs: p50", whole, "s")
    differs = int(found["sha256"] != known["sha256"])
    session.row(f"{part.title}: the result differs from alone", differs, "", target="== 0")
    session.row(f"{part.title}: as many steps", found["seconds"], "s", known["seconds"])


def take_over(session: Session, earlier: Path) -> dict[str, dict[str, Any]]:
    """The rows and lines of an earlier run; what its jobs gave alone. ProgramError where it does not belong here."""
    try:
        found = results.load(earlier)
        with gzip.open(earlier.parent / "raw" / f"{earlier.stem}.jsonl.gz", "rt", encoding="utf-8") as stream:
            lines = [json.loads(line) for line in stream]
    except (OSError, ValueError) as error:
        raise ProgramError(f"--resume {earlier}: {error}") from error
    if found.commit != (mine := results.commit()):
        raise ProgramError(f"--resume {earlier} was measured at {found.commit}, this is {mine}")
    if found.machine != (here := results.machine()):
        raise ProgramError(f"--resume {earlier} was measured on another machine: {found.machine}; this is {here}")
    if f" --rounds {session.options.rounds} " not in f"{found.command} ":
        raise ProgramError(f"--resume {earlier} has other rounds: {found.command}")
    session.rows += [row for row in found.rows if not row.what.startswith("host: ")]
    for line in lines:
        session.record(line)
    named = {f"{kind}, alone": kind for kind in KINDS}
    alone = [line for line in lines if line["event"] == "result" and line["program"] in named]
    return {named[line["program"]]: line for line in alone}


def run(session: Session) -> None:
    """The whole experiment; each part has its share of the time that is left."""
    options = session.options
    known = take_over(session, options.resume) if options.resume is not None else {}
    parts = [Part(way, kind) for way in WAYS for kind in (MEMORY, *KINDS)]
    parts = [part for part in parts if part.name in (options.parts or (part.name,)) and not part.measured(session)]
    session.manage()
    gpus = twins(session)
    known |= alone(session, [each for each in KINDS if each not in known], options.rounds)
    for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
        until = _until(session, left)
        if part.kind == MEMORY:
            memory(session, gpus, part.way, max(1, options.rounds // 10), until)
        else:
            job(session, gpus, part, known[part.kind], options.rounds, until)


def _until(session: Session, parts: int) -> float:
    """Seconds of the budget that the next of so many parts has to leave."""
    return max(LEAST_S, session.left * (parts - 1) / parts)
