# SPDX-License-Identifier: Apache-2.0
"""gang: a training job of two ranks on two GPUs, paused and let on as one by `job:PID`, beside another such job.

The `seconds` of an answer lie between the first rank's stop and the last one's at most: that is the skew's bound. In
the spatial lane the ranks are to stop between two collectives, and each answer says whether they did.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from typing import Final

from detshare.tools.bench.mix.gang import JOBS, RANKS, begin, rank_command, ranks
from detshare.tools.bench.mix.run import END, START
from detshare.tools.bench.mix.stage import SETTLE, Stage
from detshare.tools.bench.mix.worker import Worker
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import How, Lanes
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.steer import SteerError

__all__ = ["run"]

APART_S: Final = (0.02, 0.2)
"""from a pause to the way back, and to the next pause"""
GRACE_S: Final = 0.05
"""a step that had ended on the GPU is told so late at most"""
STEP_S: Final = 15.0
"""within which a job that runs again ends a step"""
LATE_S: Final = 0.5
"""within which a worker prints what it did"""
FIND_S: Final = 30.0
"""within which ranks that nobody told of are found"""
BESIDE_S: Final = 5.0
"""for which the other job is watched before"""


class Job:
    """All ranks of one job, and what was seen of them."""

    def __init__(self, session: Session, workers: Sequence[Worker]) -> None:
        self.session, self.workers = session, workers
        self.who = f"job:{workers[0].pid}"
        self.skews: dict[str, list[float]] = {"pause": [], "resume": []}
        self.between = 0
        """pauses that fell between two collectives, as each rank's change says"""
        self.spells: list[tuple[float, float]] = []
        """from when on it was off, and until when"""

    def tell(self, verb: str) -> float:
        """When it was done. SteerError, also where a rank was left out."""
        answer = self.session.steer.command(verb, self.who)
        done = time.monotonic()
        changed = {change["pid"] for change in answer["changed"]}
        if missing := {worker.pid for worker in self.workers} - changed:
            raise SteerError(f"{verb} {self.who} left out PID {', '.join(map(str, sorted(missing)))}")
        self.between += all("between two collectives" in change.get("note", "") for change in answer["changed"])
        self.skews[verb].append(float(answer["seconds"]))
        self.session.mark(verb, who=self.who, apart_s=self.skews[verb][-1])
        return done

    def stands(self, seconds: float) -> None:
        """Pause it for so long."""
        off = self.tell("pause")
        time.sleep(seconds)
        self.spells.append((off, time.monotonic()))
        self.tell("resume")

    def stepped(self) -> int:
        """Steps that ended while it was paused, of the rank that has most."""
        return max(
            sum(len(worker.steps(off + GRACE_S, on)) for off, on in self.spells if on > off + GRACE_S)
            for worker in self.workers
        )

    def first_step(self, since: float) -> float:
        """Seconds from `since` until each rank has ended a step. ProgramError where one does not, or has ended."""
        while time.monotonic() < since + STEP_S:
            first = [min(worker.steps(since, time.monotonic()), default=None) for worker in self.workers]
            if None not in first:
                return max(each for each in first if each is not None) - since
            for worker in self.workers:
                if not worker.program.alive:
                    worker.program.wait_for("(more)", 0.1)  # raises, with its last words
            time.sleep(0.05)
        raise ProgramError(f"{self.who} has ended no step within {STEP_S:g} s of going on")


def _rate(worker: Worker, begin: float, end: float) -> float:
    return len(worker.steps(begin, end)) / (end - begin)


def find(session: Session, stage: Stage) -> None:
    """Wait until each job's ranks are known as one by what they share. ProgramError where they are not."""
    jobs = [[stage.workers[name].pid for name in ranks(job)] for job in JOBS]
    begun, found = time.monotonic(), {}
    while time.monotonic() < begun + FIND_S:
        found = {each["pid"]: each["job"] for each in session.steer.ps()["programs"]}
        if all(len({found.get(pid) for pid in job} - {"", None}) == 1 for job in jobs):
            break
        time.sleep(0.1)
    else:
        raise ProgramError(f"after {FIND_S:g} s the ranks are known as {found}")
    session.row("jobs that are one by what their ranks share", len({found[job[0]] for job in jobs}), "", target="== 2")
    session.row("known, from the first step of all on", time.monotonic() - begun, "s")


def run(session: Session, rounds: int, hold_s: float, lane: str, told: bool) -> None:
    """The whole experiment. `lane`: plain or spatial; `told`: launchers tell the ranks of which job they are."""
    session.say(f"needs about {START + END + BESIDE_S + 0.4 * rounds + hold_s:.0f} s of {session.options.budget:.0f} s")
    with Lanes(session) as lanes:
        gpus = session.steer.ps().get("gpus") or []
        if len(gpus) < RANKS:
            raise ProgramError(f"this machine has {len(gpus)} GPU(s); two jobs of {RANKS} ranks need {RANKS}")
        script, _ = lanes.command(How(lane), rank_command())
        stage = begin(session, serves=False, script=script, told=told)
        try:
            if not told:
                find(session, stage)
            for worker in stage.workers.values() if lane == "spatial" else ():
                lanes.spatial(worker.pid)
            play(session, stage, rounds, hold_s, lane)
        finally:
            for worker in stage.workers.values():
                session.drop(worker.program)


def play(session: Session, stage: Stage, rounds: int, hold_s: float, lane: str = "plain") -> None:
    """Pauses of job A at random moments, then a long one."""
    every = [name for job in JOBS for name in ranks(job)]
    job, other = Job(session, [stage.workers[name] for name in ranks(JOBS[0])]), stage.workers[ranks(JOBS[1])[0]]
    dice = random.Random(session.options.seed)
    try:
        for name in every:
            stage.workers[name].go()
            stage.workers[name].answered()
        time.sleep(SETTLE)
        before = time.monotonic()
        time.sleep(BESIDE_S)
        beside = _rate(other, before, time.monotonic())
        for _ in range(rounds):
            if session.left < hold_s + 2 * STEP_S + END:
                break
            job.stands(dice.uniform(*APART_S))
            time.sleep(dice.uniform(*APART_S))
        job.first_step(time.monotonic())
        off = time.monotonic()
        job.stands(hold_s)
        on = time.monotonic()
        took = job.first_step(on)
        time.sleep(LATE_S)
        _rows(session, job, rounds, beside)
        if lane == "spatial":
            session.row("pauses between two collectives", job.between, "", target=f">= {len(job.spells)}")
        held = f"paused for {hold_s:g} s"
        session.row(f"{held}: ranks that ended", sum(not w.program.alive for w in job.workers), "", target="== 0")
        session.row(f"{held}: each rank's first step after", took, "s")
        session.row(f"{held}: the other job", _rate(other, off, on), "steps/s", beside, ">= 0.95 x baseline")
    finally:
        with contextlib.suppress(SteerError):
            session.steer.command("resume", job.who)  # who is off would not come to its rest
        stage.calm(every, True)


def _rows(session: Session, job: Job, rounds: int, beside: float) -> None:
    session.row("the other job beside it", beside, "steps/s")
    session.row(f"pauses of a job of {RANKS} ranks", len(job.spells), "", target=f">= {rounds}")
    for verb, skews in job.skews.items():
        what = f"{verb}: from the first rank to the last, at most"
        session.row(f"{what}: p50", 1000 * percentile(skews, 50), "ms")
        session.row(f"{what}: p99", 1000 * percentile(skews, 99), "ms", target="<= 5" if verb == "pause" else None)
    session.row("steps that ended while it was paused", job.stepped(), "", target="== 0")
