# SPDX-License-Identifier: Apache-2.0
"""mix-gang: two training jobs of two ranks each, over two GPUs, both `low`, beside a server on the first GPU.

A job whose ranks are let on and off at different times stands still on both GPUs. At the end one job is killed while
it has its turn: the other one is to go on at once.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.mix.figures import Server
from detshare.tools.bench.mix.run import END, START
from detshare.tools.bench.mix.stage import SETTLE, Played, Stage, Wanted
from detshare.tools.bench.mix.verdict import limit_us
from detshare.tools.bench.mix.worker import Worker, command, start, warm
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError

__all__ = ["JOBS", "RANKS", "begin", "environment", "holds", "rank_command", "ranks", "run"]

JOBS = ("A", "B")
RANKS = 2
SCRIPT = WORKLOADS / "mix" / "ddp.py"
SERVER = "graph"
PERIOD_MS = 20.0
HOLD_SECONDS = 3.0
"""how long is waited for a job to have its turn"""
AFTER_SECONDS = 5.0
"""in which the other job's next step is waited for"""
QUIET = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""NVLink multicast stays off: machines that are lent do not allow it"""

TELLING = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def ranks(job: str) -> list[str]:
    """Names of a job's ranks."""
    return [f"{job}{rank}" for rank in range(RANKS)]


def environment(rank: int, port: int) -> dict[str, str]:
    """As torchrun sets it."""
    found = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS, "MASTER_PORT": port}
    return {**{name: str(value) for name, value in found.items()}, "MASTER_ADDR": "127.0.0.1", **QUIET} | {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def holds(ps: dict[str, object], pids: set[int]) -> bool:
    """Whether one of the processes has its turn on some GPU."""
    programs = ps.get("programs")
    assert isinstance(programs, list)
    return any(
        place.get("standing") in ("holds", "window")
        for program in programs
        if program["pid"] in pids
        for place in program.get("places") or ()
    )


def rank_command() -> list[str]:
    """The command of a rank; which one it is its environment says."""
    return [sys.executable, str(SCRIPT)]


def begin(session: Session, *, serves: bool = True, script: Sequence[str] = (), told: bool = True) -> Stage:
    """All programs, warm; `serves`: a server, too; `script`: a rank's command, where it is not started plainly;
    `told`: the ranks' environment says of which job they are.

    ProgramError where one did not start: half a job says nothing.
    """
    script = script or rank_command()
    started = [start(session, SERVER, command(SERVER))] if serves else []
    for job in JOBS:
        port = _port()
        for rank, name in enumerate(ranks(job)):
            variables = environment(rank, port)
            words = [] if told else [f"{key}={variables.pop(key)}" for key in TELLING]
            started.append(start(session, name, [*script, *words], variables))
    stage = Stage(session, warm(session, started))
    missing = [worker.name for worker in started if worker.name not in stage.workers]
    if missing:
        raise ProgramError(f"{', '.join(missing)} did not start; a job needs all its ranks")
    return stage


def run(session: Session) -> None:
    """The whole experiment."""
    seconds = session.options.seconds
    session.say(f"needs about {START + END + 4.5 * seconds + 25:.0f} s of the {session.options.budget:.0f} s")
    session.manage()
    gpus = session.steer.ps().get("gpus") or []
    if len(gpus) < RANKS:
        raise ProgramError(f"this machine has {len(gpus)} GPU(s); two jobs of {RANKS} ranks need {RANKS}")
    stage = begin(session)
    stage.gpu = str(gpus[0]["uuid"])
    lc = stage.play(f"{SERVER}: alone", seconds, SERVER, (), None, PERIOD_MS).server
    assert lc is not None
    session.row(f"{SERVER}: alone: p99 of {lc.count} requests", lc.p99, "us")
    every = [name for job in JOBS for name in ranks(job)]
    job = stage.play("job A: alone", max(3.0, seconds / 4), "", ranks("A"))
    session.row("job A: alone", job.back["A0"].rate, "steps/s")
    default = stage.play("two jobs: default slicing", seconds, SERVER, every, None, PERIOD_MS)
    jobs = _rows(session, "default slicing", default, lc, None)
    wanted = {SERVER: Wanted("high")} | {name: Wanted("low") for name in every}
    ours = stage.play("two jobs: DetShare", seconds, SERVER, every, wanted, PERIOD_MS)
    _rows(session, "DetShare", ours, lc, jobs)
    if session.left > HOLD_SECONDS + AFTER_SECONDS + SETTLE + END:
        killed(session, stage, wanted)
    else:
        session.say("the budget is used up: no job is killed")


def _rows(session: Session, how: str, seen: Played, alone: Server, baseline: float | None) -> float:
    """Rows of two jobs beside the server; the jobs' steps together."""
    assert seen.server is not None
    judged = baseline is not None
    target = f"<= {limit_us(alone.p99):.6g}" if judged else None
    what = f"{how}: {SERVER}: p99 of {seen.server.count} requests"
    session.row(f"{how}: {SERVER}: p50", seen.server.p50, "us", alone.p50)
    session.row(what, seen.server.p99, "us", alone.p99, target)
    rates = [seen.back[ranks(job)[0]] for job in JOBS]
    for job, one in zip(JOBS, rates, strict=True):
        session.row(f"{how}: job {job}", one.rate, "steps/s")
        session.row(f"{how}: job {job}: longest without progress", one.gap_s, "s", None, "<= 1" if judged else None)
    total = sum(one.rate for one in rates)
    session.row(f"{how}: both jobs", total, "steps/s", baseline, ">= 0.95 x baseline" if judged else None)
    return total


def killed(session: Session, stage: Stage, wanted: dict[str, Wanted]) -> None:
    """Kill job A in its turn, and see when job B ends its next step."""
    every = [name for job in JOBS for name in ranks(job)]
    first, other = [stage.workers[name] for name in ranks("A")], stage.workers["B0"]
    try:
        for name, each in wanted.items():
            stage.give(name, each)
        for name in (*every, SERVER):
            stage.workers[name].go(**({"period_ms": PERIOD_MS} if name == SERVER else {}))
            stage.workers[name].answered()
        time.sleep(SETTLE)
        seen = _in_turn(session, first)
        for worker in first:
            worker.program.signal(signal.SIGKILL)
        when = time.monotonic()
        session.mark("killed", job="A", t=round(when, 6), in_turn=seen)
        time.sleep(AFTER_SECONDS)
        steps = other.steps(when, time.monotonic())
        what = "job A killed in its turn" if seen else "job A killed (ps named no holder)"
        session.row(f"{what}: job B ends its next step after", steps[0] - when if steps else AFTER_SECONDS, "s", None)
        gone_on = _gone_on(steps, when)
        session.row(f"{what}: job B goes on after, less a step", gone_on, "s", None, "<= 0.2")
        session.row(f"{what}: job B afterwards", len(steps) / AFTER_SECONDS, "steps/s")
    except (ProgramError, SteerError) as error:
        session.say(f"left out: a job killed: {error}")
    finally:
        for name in ranks("A"):
            gone = stage.workers.pop(name)
            session.drop(gone.program)
        stage.calm([SERVER, *ranks("B")], True)


def _gone_on(steps: list[float], when: float) -> float:
    """When the step that ended first began, at the latest: its end less the median length of those that follow."""
    if not steps:
        return AFTER_SECONDS
    lengths = sorted(later - earlier for earlier, later in pairwise(steps))
    usual = lengths[len(lengths) // 2] if lengths else 0.0
    return max(0.0, steps[0] - when - usual)


def _in_turn(session: Session, first: list[Worker]) -> bool:
    """Wait until ``ps`` says that the job has its turn; False where it does not say so in time."""
    pids = {worker.pid for worker in first}
    until = time.monotonic() + HOLD_SECONDS
    while time.monotonic() < until:
        if holds(session.steer.ps(), pids):
            return True
        time.sleep(0.01)
    return False
