# SPDX-License-Identifier: Apache-2.0
"""mix-random: random classes, weights and pauses, kills of programs and of the daemon, and late starts, for minutes.

Eight small programs compute the same thing again and again. Each must get on within a bound unless it is paused, all
must run after the daemon is gone, and every output must have the bits that it has alone.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.mix.standstill import Standstills
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError

__all__ = ["KINDS", "Player", "Troupe", "again", "run"]

KINDS = ("eager", "graphs", "threads", "cupy", "jax", "triton", "sums", "more-sums")
BOUND = 30.0
"""seconds: eight programs, some idle below a busy one that leaves them a floor of 1 %, share a GPU and a host"""
FREE = 5.0
"""seconds after the daemon's death in which each program has to get on"""
START_SECONDS = 150.0
DIGEST_SECONDS = 60.0
CLASSES = ("high", "normal", "low", "low", "low", "idle")
EVERY = (0.05, 0.5)
"""seconds between two acts"""
ACTS = {"class": 10, "weight": 4, "release": 2, "pause": 4, "stop": 2, "kill": 0.5, "daemon": 0.25}
"""how often each is chosen"""


def again(kind: str) -> list[str]:
    """The command of a program that computes the same thing again and again."""
    return [sys.executable, str(WORKLOADS / "mix" / "again.py"), "--kind", kind]


@dataclass
class Player:
    """One of the eight, whichever process plays it."""

    kind: str
    program: Program
    ready: bool = False
    seen: float = -1.0
    """time of the last beat that was taken in"""
    paused_until: float | None = None
    """by the daemon"""
    stopped_until: float | None = None
    """by SIGSTOP"""
    digests: list[str] = field(default_factory=list)
    read: float = -1.0

    @property
    def free(self) -> bool:
        """Whether it is to get on."""
        return self.ready and self.paused_until is None and self.stopped_until is None

    def beats(self) -> list[float]:
        """Times of the beats since the last call."""
        found = [float(line["t"]) for line in self.program.lines("beat", self.seen + 1e-6)]
        if found:
            self.seen = found[-1]
        return found

    def read_digests(self) -> None:
        """Take in the digests since the last call."""
        for line in self.program.lines("digest", self.read + 1e-6):
            self.digests.append(str(line["sha256"]))
            self.read = float(line["t"])


@dataclass
class Troupe:
    """All players, what is done to them, and what was seen."""

    session: Session
    choose: random.Random
    start: Callable[[str], list[str]] = again
    players: dict[str, Player] = field(default_factory=dict)
    alone: dict[str, str] = field(default_factory=dict)
    still: Standstills = field(default_factory=lambda: Standstills(BOUND))
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    differing: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    """who did not get on after the daemon's death"""
    back: list[float] = field(default_factory=list)
    """seconds from the daemon's death to the last program's next beat"""

    # -- before -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start all and take the digest of each alone. ProgramError where fewer than two can run here."""
        started = {kind: self.launch(kind) for kind in KINDS}
        begun = time.monotonic()
        for kind, program in started.items():
            try:
                program.ready(max(1.0, begun + START_SECONDS - time.monotonic()))
            except ProgramError as error:
                self.session.say(f"left out: {error}")
                self.session.drop(program)
                continue
            program.hold()
            self.players[kind] = Player(kind, program, True)
        for player in list(self.players.values()):
            player.program.go_on()
            try:
                # the one under way began beside the others' start
                first = player.program.wait_for("digest", DIGEST_SECONDS, time.monotonic())
                mine = player.program.wait_for("digest", DIGEST_SECONDS, first["t"] + 1e-6)
            except ProgramError as error:
                self.session.say(f"left out: {error}")
                self.session.drop(player.program)
                del self.players[player.kind]
                continue
            player.program.hold()
            self.alone[player.kind] = mine["sha256"]
            player.read = mine["t"]
        if len(self.players) < 2:
            raise ProgramError("fewer than two programs can run here, so there is no mix")
        for player in self.players.values():
            player.program.go_on()

    def launch(self, kind: str) -> Program:
        """A process of that kind, a tenant of its own: whatever runs in one container would be one."""
        return self.session.start(kind, self.start(kind), {"DETSHARE_TENANT": kind}, told=True)

    # -- acts ---------------------------------------------------------------------------------------------------

    def act(self, now: float) -> None:
        """Something at random."""
        what = self.choose.choices(list(ACTS), list(ACTS.values()))[0]
        able = [player for player in self.players.values() if player.free]
        if what == "daemon":
            self.kill_daemon()
            return
        if not able:
            return
        player = self.choose.choice(able)
        pid = player.program.pid
        self.session.mark("act", what=what, kind=player.kind, pid=pid)
        match what:
            case "class":
                self._verb("set-priority", pid, klass=self.choose.choice(CLASSES))
            case "weight":
                self._verb("set-weight", pid, weight=self.choose.randint(1, 8))
            case "release":
                self._verb("release", pid)
            case "pause":
                if self._verb("pause", pid):
                    player.paused_until = now + self.choose.uniform(0.2, 3.0)
                    self.still.away(player.kind)
            case "stop":
                player.program.hold()
                player.stopped_until = now + self.choose.uniform(0.2, 2.0)
                self.still.away(player.kind)
            case _:
                self.kill(player)
        self.done[what] += 1

    def _verb(self, name: str, pid: int, **arguments: object) -> bool:
        try:
            if name == "release":
                self.session.steer.release(pid)
            else:
                self.session.steer.verb(name, pid, **arguments)
        except SteerError as error:
            self.refused[name] += 1
            self.session.mark("refused", verb=name, pid=pid, why=str(error)[:300])
            return False
        return True

    def kill(self, player: Player) -> None:
        """kill -9, and the same program anew: it comes late."""
        self.compare(player)
        player.program.signal(signal.SIGKILL)
        self.session.drop(player.program)
        self.still.away(player.kind)
        self.players[player.kind] = Player(player.kind, self.launch(player.kind))

    def kill_daemon(self) -> None:
        """kill -9 of the daemon: whoever was off must get on. Then a new daemon."""
        self.done["daemon"] += 1
        when = self.session.steer.kill()
        self.session.mark("daemon killed", t=round(when, 6))
        self.alone_again(when, "the daemon's death")
        try:
            self.session.steer.start()
        except SteerError as error:
            self.off.append(f"the daemon did not start again: {error}")
            self.session.say(self.off[-1])
            return
        for player in self.players.values():
            if player.paused_until is not None:  # the guardian let it run; a daemon that remembers may not have
                self._verb("resume", player.program.pid)
                player.paused_until = None
                self.still.beat(player.kind, time.monotonic())

    def alone_again(self, when: float, what: str) -> None:
        """Each program that runs gets on within `FREE` seconds of that time, paused ones too."""
        waiting = {
            player.kind: player
            for player in self.players.values()
            if player.ready and player.stopped_until is None and player.program.alive
        }
        while waiting and time.monotonic() < when + FREE:
            for kind, player in list(waiting.items()):
                if player.program.lines("beat", when):
                    del waiting[kind]
            time.sleep(0.02)
        self.back.append(time.monotonic() - when)
        for kind in waiting:
            self.off.append(f"{kind} made no progress within {FREE:g} s of {what}")
            self.session.say(self.off[-1])

    # -- watching -----------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Take in beats; end pauses that are over; see who locks up, who died, who got ready."""
        for player in list(self.players.values()):
            if not player.ready:
                player.ready = bool(player.program.lines("ready"))
                if player.ready:
                    self.still.beat(player.kind, now)
            if not player.program.alive:
                self.died.append(f"{player.kind} ended by itself: {player.program.last_words()[-300:]}")
                self.session.say(self.died[-1])
                self.kill(player)
                continue
            if player.stopped_until is not None and now >= player.stopped_until:
                player.program.go_on()
                player.stopped_until = None
                self.still.beat(player.kind, now)
            resumes = player.paused_until is not None and now >= player.paused_until
            if resumes and self._verb("resume", player.program.pid):
                player.paused_until = None
                self.still.beat(player.kind, now)
            for at in player.beats():
                if player.free:
                    self.still.beat(player.kind, at)
        for name in self.still.look(now):
            self.session.say(f"LOCK-UP: {self.still.lockups[-1]}")
            self.session.mark("lock-up", kind=name, ps=self._ps())

    def _ps(self) -> object:
        try:
            return self.session.steer.ps()
        except SteerError as error:
            return str(error)

    def compare(self, player: Player) -> None:
        """Its digests with the one alone."""
        player.read_digests()
        for digest in player.digests:
            self.compared += 1
            if digest != self.alone[player.kind]:
                self.differing.append(f"{player.kind}: {digest}")
        player.digests.clear()

    # -- after --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let all go on, end the daemon as a user does, and see that nobody stays off."""
        for player in self.players.values():
            if player.stopped_until is not None:
                player.program.go_on()
                player.stopped_until = None
        when = time.monotonic()
        self.session.steer.stop()
        self.alone_again(max(when, time.monotonic()), "the daemon's end")
        for player in self.players.values():
            self.compare(player)

    def report(self) -> None:
        """All rows."""
        row = self.session.row
        row("programs", len(self.alone), "programs", None, ">= 8")
        for what in ACTS:
            row(f"acts: {what}", self.done[what], "acts")
        row("verbs that the daemon refused", sum(self.refused.values()), "verbs")
        row(
            f"lock-ups: a program that is not paused without progress for {self.still.bound:g} s",
            0.0 + len(self.still.lockups),
            "lock-ups",
            None,
            "== 0",
        )
        row(f"longest without progress ({self.still.whose})", self.still.longest, "s")
        row("programs off, and daemons that did not start, after a daemon was gone", len(self.off), "", None, "== 0")
        if self.back:
            row("longest from a daemon's death until all had got on", max(self.back), "s")
        row("programs that ended by themselves", len(self.died), "programs", None, "== 0")
        row("outputs compared with those alone", self.compared, "outputs", None, ">= 8")
        row("outputs that differ", len(self.differing), "outputs", None, "== 0")


def run(session: Session, minutes: float) -> None:
    """The whole experiment."""
    session.say(f"needs about {60 * minutes + 120:.0f} s of the {session.options.budget:.0f} s")
    troupe = Troupe(session, random.Random(session.options.seed))
    troupe.begin()
    session.manage()
    begun = said = time.monotonic()
    until = min(begun + 60 * minutes, begun + session.left - FREE - 25.0)
    try:
        following = 0.0
        while (now := time.monotonic()) < until:
            troupe.look(now)
            if now >= following:
                troupe.act(now)
                following = time.monotonic() + troupe.choose.uniform(*EVERY)
            if now - said > 15:
                said = now
                for player in troupe.players.values():
                    troupe.compare(player)
                session.say(
                    f"{sum(troupe.done.values())} acts, {troupe.compared} outputs, {len(troupe.differing)} differ, "
                    f"{len(troupe.still.lockups)} lock-ups, longest {troupe.still.longest:.1f} s"
                )
            time.sleep(0.05)
        troupe.finish()
    finally:
        session.row("time of random acts", (time.monotonic() - begun) / 60, "min")
        troupe.report()
