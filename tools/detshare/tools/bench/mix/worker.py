# SPDX-License-Identifier: Apache-2.0
"""The programs of a mix as the experiment sees them: started once, told to work and to rest, asked what they did."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session

__all__ = ["BACKGROUNDS", "SERVERS", "Requests", "Worker", "command", "rest", "start", "warm"]

SERVERS = ("graph", "eager")
BACKGROUNDS = ("vit", "gpt2", "fft", "resnet", "jax")
"""in the order in which a mix takes them"""
ANSWER_SECONDS = 30.0
"""within which a program that is told to rest has done what it had queued"""
START_SECONDS = 150.0


def command(kind: str, *words: object) -> list[str]:
    """The command of a server or of a background."""
    script = "server.py" if kind in SERVERS else "background.py"
    return [sys.executable, str(WORKLOADS / "mix" / script), "--kind", kind, *map(str, words)]


@dataclass(frozen=True)
class Requests:
    """Of one interval, by their ends: when each was due (monotonic s), its latency from then and its own time (us)."""

    at: list[float]
    latency_us: list[float]
    own_us: list[float]
    dropped: int
    """so far, of the whole run"""
    answers: dict[str, int] = field(default_factory=dict)
    """by digest how often, of the lines in which one of these ended"""


class Worker:
    """A program that takes orders (workloads/mix/orders.py)."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self.program = program
        self._ids = itertools.count(1)
        self._asked = 0
        self.resting = True

    @property
    def pid(self) -> int:
        """The process."""
        return self.program.pid

    def go(self, **how: object) -> None:
        """Tell it to work; `answered` waits until it does. ProgramError."""
        self._order("go", **how)
        self.resting = False

    def stop(self) -> None:
        """Tell it to finish what is queued and to rest."""
        self._order("stop")
        self.resting = True

    def _order(self, do: str, **how: object) -> None:
        self._asked = next(self._ids)
        self.program.tell(do=do, id=self._asked, **how)

    def answered(self, timeout: float | None = None) -> None:
        """Wait until it did the last order. ProgramError where it does not, or ended."""
        event = "stopped" if self.resting else "going"
        patience = ANSWER_SECONDS if timeout is None else timeout
        self.program.wait_for(event, patience, accept=lambda line: bool(line.get("id") == self._asked))

    def steps(self, begin: float, end: float) -> list[float]:
        """When each step, or request, ended, within [begin, end]."""
        lines = self.program.lines("steps")
        steps = [at for line in lines if line["at"][-1] >= begin for at in line["at"] if begin <= at <= end]
        served = self.requests(begin, end)
        return [*steps, *(at + took / 1e6 for at, took in zip(served.at, served.latency_us, strict=True))]

    def requests(self, begin: float, end: float) -> Requests:
        """The requests that ended within [begin, end], whenever they were due."""
        found = Requests([], [], [], 0)
        dropped = 0
        for line in self.program.lines("requests"):
            dropped, before = line["dropped"], len(found.at)
            for at, latency, own in zip(line["at"], line["latency_us"], line["own_us"], strict=True):
                if begin <= at + latency / 1e6 <= end:
                    found.at.append(at)
                    found.latency_us.append(latency)
                    found.own_us.append(own)
            if len(found.at) > before:
                for digest, count in line.get("answers", {}).items():
                    found.answers[digest] = found.answers.get(digest, 0) + count
        return replace(found, dropped=dropped)


def start(session: Session, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Worker:
    """Start a program that takes orders, a tenant of its own unless its environment has it be a rank of a job.

    Whatever runs in one container or service is one tenant otherwise. `warm` waits for it.
    """
    own = {} if env is not None and "WORLD_SIZE" in env else {"DETSHARE_TENANT": name}
    return Worker(name, session.start(name, argv, {**own, **(env or {})}, told=True))


def warm(
    session: Session,
    workers: Iterable[Worker],
    seconds: float = START_SECONDS,
    lost: MutableMapping[str, str] | None = None,
) -> dict[str, Worker]:
    """Those that got ready, by name. One that did not is ended, and why is said: the others go on without it.

    :param lost: takes why, by name.
    """
    found: dict[str, Worker] = {}
    begun = time.monotonic()
    for worker in workers:
        try:
            line = worker.program.ready(max(1.0, begun + seconds - time.monotonic()))
        except ProgramError as error:
            session.say(f"left out: {error}")
            if lost is not None:
                lost[worker.name] = str(error)
            session.mark("left out", name=worker.name, why=str(error))
            session.drop(worker.program)
            continue
        instead = f" INSTEAD, since {line['instead']}" if line.get("instead") else ""
        session.say(f"{worker.name} is ready: {line.get('what', '')}{instead}")
        found[worker.name] = worker
    return found


def rest(session: Session, workers: Iterable[Worker]) -> list[Worker]:
    """Tell all to rest. Those that do not within `ANSWER_SECONDS` are killed, told of, and returned."""
    lost = []
    asked = []
    for worker in workers:
        if worker.resting:
            continue
        try:
            worker.stop()
            asked.append(worker)
        except ProgramError as error:
            session.say(str(error))
            lost.append(worker)
    for worker in asked:
        try:
            worker.answered()
        except ProgramError as error:
            session.say(str(error))
            lost.append(worker)
    for worker in lost:
        session.mark("lost", name=worker.name)
        session.drop(worker.program)
    return lost
