# SPDX-License-Identifier: Apache-2.0
"""park-faults: programs, the daemon and its guardian killed at random points of parks, and an arena that is full.

A keeper is parked and comes back through all of it, and its bytes are compared after each fault. Rounds are kills.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from detshare.ctl.client import ClientError
from detshare.tools.bench.parking import nvml
from detshare.tools.bench.parking.holder import MIB, Holder
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import Lanes
from detshare.tools.bench.steer import SteerError

__all__ = ["run"]

SIZE_MIB: Final = 512
CHUNK_MIB: Final = 64
KINDS: Final = ("program", "program", "daemon", "guardian", "daemon and guardian")
WINDOW_S: Final = (0.0, 0.25)
"""from the request to the kill: a park that gets its host memory takes about as long"""
BATCH: Final = 8
"""programs that start at the same time, to be killed"""
PATIENCE: Final = 30.0
LEAST_S: Final = 30.0


def guardian(daemon: int | None) -> int | None:
    """The PID of a daemon's guardian; None where it has none."""
    for each in Path(f"/proc/{daemon}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in each.read_text(encoding="ascii").split():
                if b"guardian" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
    return None


class Faults:
    """The keeper, those that are killed, and what was found."""

    def __init__(self, session: Session) -> None:
        self.session, self.dice = session, random.Random(session.options.seed)
        self.keeper = Holder(session, SIZE_MIB, chunk_mib=CHUNK_MIB)
        self.spare: list[Holder] = []
        self.kills: Counter[str] = Counter()
        self.differed = self.stayed = 0

    def ask(self, pid: int, verb: str = "park") -> None:
        """Nobody waits for it, and it may be too late."""
        with contextlib.suppress(ClientError):
            self.session.steer.client.verb(verb, str(pid), **({"timeout": 0.0} if verb == "park" else {}))

    def listed(self, pid: int) -> bool:
        """Whether `ps` still has a program, for as long as it may need to see that it ended."""
        until = time.monotonic() + PATIENCE
        while self.session.steer.program(pid) is not None:
            if time.monotonic() > until:
                return True
            time.sleep(0.01)
        return False

    def victim(self) -> Holder:
        """A program that will be killed."""
        if not self.spare:
            with ThreadPoolExecutor(BATCH) as pool:
                makes = [pool.submit(Holder, self.session, SIZE_MIB, True, CHUNK_MIB) for _ in range(BATCH)]
                self.spare = [make.result() for make in makes]
        return self.spare.pop()

    def kill_program(self) -> None:
        """In the middle of leaving, or of coming back."""
        victim = self.victim()
        pid = victim.program.pid
        if self.dice.random() < 0.3:
            victim.park()
            victim.program.tell(do="launch", number=0)
        else:
            self.ask(pid)
        time.sleep(self.dice.uniform(*WINDOW_S))
        victim.program.signal(signal.SIGKILL)
        victim.end()
        self.stayed += self.listed(pid)

    def kill_others(self, kind: str) -> None:
        """While the keeper leaves or comes back."""
        pid = self.keeper.program.pid
        self.ask(pid, self.dice.choice(("park", "park", "resume")))
        time.sleep(self.dice.uniform(*WINDOW_S))
        watcher = guardian(self.session.steer.pid)
        if "guardian" in kind and watcher is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(watcher, signal.SIGKILL)
        if "daemon" in kind:
            self.session.steer.kill()
            if self.dice.random() < 0.5:
                self.keeper.launch()
            self.session.steer.start()

    def one(self) -> None:
        """A fault, and whether the keeper has all its bytes after it."""
        kind = self.dice.choice(KINDS)
        if "guardian" in kind and guardian(self.session.steer.pid) is None:
            kind = "daemon"  # the other is only now being started, or this backend has none
        self.kill_program() if kind == "program" else self.kill_others(kind)
        self.kills[kind] += 1
        if self.dice.random() < 0.5:
            self.keeper.write(4, self.dice.getrandbits(32))
        same = self.keeper.same()
        self.differed += not same
        self.session.mark("kill", kind=kind, same=same)


def full_arena(session: Session) -> None:
    """A program for which the arena has no room is refused, and has all its bytes."""
    large = Holder(session, 3 * SIZE_MIB, chunk_mib=CHUNK_MIB)
    try:
        refused = False
        try:
            large.park()
        except SteerError as error:
            refused = "there is no host memory for it" in str(error)
        session.row("arena full: the park was refused, with the reason", int(refused), "", target="== 1")
        session.row("arena full: memory that differs", int(not large.same()), "", target="== 0")
    finally:
        large.end()


def nothing_left(session: Session, before: int, had: int | None, keeper: Holder) -> None:
    """The GPU's memory is free again, and the arena has room for what only fits if nobody else has any.

    `before`: bytes that were free; `had`: of the GPU, what the keeper had then, where NVML knows it.
    """
    keeper.launch()
    until = time.monotonic() + PATIENCE
    while (left := before - keeper.left()) > 0 and time.monotonic() < until:
        time.sleep(0.05)
    session.row("GPU memory that killed programs left behind", max(left, 0) / MIB, "MiB", target="== 0")
    if had is not None and (has := nvml.used_by(keeper.program.pid)) is not None:
        session.row("GPU memory that the keeper has more than before", (has - had) / MIB, "MiB")
    rest = Holder(session, SIZE_MIB + SIZE_MIB // 2, chunk_mib=CHUNK_MIB)
    try:
        keeper.park()
        fits = 1
        try:
            rest.park()
        except SteerError as error:
            session.say(str(error))
            fits = 0
        session.row("what is left of the arena can be had", fits, "", target="== 1")
    finally:
        rest.end()


def run(session: Session) -> None:
    """The whole experiment."""
    rounds = session.options.rounds
    session.steer.config = session.folder / "detshare.toml"
    session.steer.config.write_text(f'[park]\narena = "{SIZE_MIB * 5 // 2}M"\n', encoding="utf-8")
    with Lanes(session):
        faults = Faults(session)
        faults.keeper.park()
        faults.keeper.launch()  # what parks need of the GPU for themselves is there, and stays
        before, had = faults.keeper.left(), nvml.used_by(faults.keeper.program.pid)
        full_arena(session)
        while faults.kills.total() < rounds and session.left > LEAST_S:
            faults.one()
        for victim in faults.spare:
            victim.end()
        for kind in dict.fromkeys(KINDS):
            session.row(f"kills: {kind}", faults.kills[kind], "kills")
        session.row("kills", faults.kills.total(), "kills", target=f">= {rounds}")
        session.row("kills after which the keeper's memory differed", faults.differed, "kills", target="== 0")
        session.row("killed programs that ps went on to list", faults.stayed, "programs", target="== 0")
        nothing_left(session, before, had, faults.keeper)
        session.row("memory that differs at the end", int(not faults.keeper.same()), "", target="== 0")
        faults.keeper.end()
