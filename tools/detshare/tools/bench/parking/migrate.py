# SPDX-License-Identifier: Apache-2.0
"""migrate: held memory, a decode and a training moved between two GPUs and back by `detshare-ctl migrate`.

Rounds are moves there and back of each job; the held memory has a tenth of them. The programs run plainly: the driver's
checkpoint takes them by their PID.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

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


class Mover:
    """One program, and what its moves took. SteerError where one fails."""

    def __init__(self, session: Session, pid: int, gpus: Sequence[dict[str, Any]]) -> None:
        self._session, self._pid, self._gpus = session, pid, gpus
        self._at = 0
        self.seconds: list[float] = []
        """the driver's own"""
        self.waited: list[float] = []
        """from the command until the program runs again"""

    def move(self) -> None:
        """To the other GPU."""
        there, before = self._gpus[1 - self._at], self._parking().get("parks", 0)
        began = time.monotonic()
        self._session.steer.verb("migrate", self._pid, gpu=there["uuid"])
        while (parking := self._parking())["state"] != "home":
            if time.monotonic() > began + LONGEST_S:
                raise SteerError(f"PID {self._pid} is {parking['state']} {LONGEST_S:g} s after it was to move")
            time.sleep(0.01)
        if parking["parks"] == before:
            raise SteerError(f"PID {self._pid} was not moved: {'; '.join(self._program()['notes'])}")
        self._at = 1 - self._at
        self.seconds.append(parking["resume_ms"] / 1000)
        self.waited.append(time.monotonic() - began)
        self._session.mark("moved", pid=self._pid, to=there["uuid"], seconds=self.seconds[-1])

    def _program(self) -> dict[str, Any]:
        found = self._session.steer.program(self._pid)
        if found is None:
            raise SteerError(f"ps has no PID {self._pid}")
        return found

    def _parking(self) -> dict[str, Any]:
        return self._program().get("parking") or {"state": "home"}


def twins(session: Session) -> list[dict[str, Any]]:
    """Two GPUs of one chip. ProgramError where there are none."""
    gpus = session.steer.ps().get("gpus") or []
    found = [gpu for gpu in gpus if gpu["name"] == gpus[0]["name"]]
    if len(found) < 2:
        raise ProgramError(f"this machine has {len(gpus)} GPU(s); a move needs two of one chip")
    return found[:2]


def memory(session: Session, gpus: Sequence[dict[str, Any]], rounds: int) -> None:
    """So many GiB that stand still, compared after each move."""
    holder = Holder(session, SIZE_MIB, park=False)
    try:
        mover, differs = Mover(session, holder.program.pid, gpus), 0
        for _ in range(2 * rounds):
            if session.left < LEAST_S:
                break
            mover.move()
            differs += not holder.same()
            holder.write(16, len(mover.seconds))
        size = f"{SIZE_MIB / 1024:g} GiB"
        session.row(f"{size}: moves", len(mover.seconds), "", target=f">= {2 * rounds}")
        if mover.seconds:
            session.row(f"{size}: a move, by the driver: p50", percentile(mover.seconds, 50), "s", target="<= 2")
            session.row(f"{size}: from the command until it runs: p50", percentile(mover.waited, 50), "s")
        session.row(f"{size}: moves after which memory differed", differs, "", target="== 0")
    finally:
        holder.end()


def _job(session: Session, name: str, kind: str) -> Program:
    program = session.start(f"{kind}, {name}", argv(kind, HOLD_MIB), told=True)
    program.wait_for("loaded", LOAD_S)
    return program


def job(session: Session, gpus: Sequence[dict[str, Any]], kind: str, rounds: int) -> None:
    """One that works while it is moved to and fro; its result beside that of one left alone."""
    plain = _job(session, "alone", kind)
    seconds = max(session.options.seconds, SLACK * 2 * rounds * REST_S)
    plain.tell(seconds=seconds)
    known = plain.wait_for("result", LOAD_S + seconds)
    session.drop(plain)
    program = _job(session, "moved", kind)
    mover = Mover(session, program.pid, gpus)
    program.tell(steps=known["steps"])
    while len(mover.seconds) < 2 * rounds and not program.lines("result"):
        if not program.alive or session.left < LEAST_S + seconds:
            break
        mover.move()
        time.sleep(REST_S)
    found = program.wait_for("result", LOAD_S + seconds)
    session.drop(program)
    session.row(f"{kind}: moves while it worked", len(mover.seconds), "", target=f">= {2 * rounds}")
    session.row(f"{kind}: the result differs from alone", int(found["sha256"] != known["sha256"]), "", target="== 0")
    session.row(f"{kind}: as many steps", found["seconds"], "s", known["seconds"])


def run(session: Session) -> None:
    """The whole experiment."""
    session.manage()
    gpus = twins(session)
    memory(session, gpus, max(1, session.options.rounds // 10))
    for kind in KINDS:
        job(session, gpus, kind, session.options.rounds)
