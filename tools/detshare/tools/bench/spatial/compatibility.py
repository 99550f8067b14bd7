# SPDX-License-Identifier: Apache-2.0
"""compatibility: the output of programs with and without the runtime, one for each way of using CUDA.

Each program computes something fixed and prints a digest. It runs twice without the runtime, which says whether its
output can be compared at all, and once in the spatial lane, where it is given another share of the SMs twenty times a
second. "Without" and "with" end with the same digest and exit code, or a row says otherwise.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import compat
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import PLAIN, How, Lanes
from detshare.tools.bench.steer import SteerError

SAME = How("spatial", klass="normal")
PERCENTS = tuple(range(6, 101, 6))
PROGRAMS = {
    "PyTorch eager": compat("torch_app", "eager"),
    "torch.compile": compat("torch_app", "compile"),
    "torch CUDA graphs": compat("torch_app", "graphs"),
    "Triton": compat("triton_app"),
    "CuPy": compat("cupy_app"),
    "JAX": compat("jax_app"),
    "static cudart, C": compat("static_sums"),
    "four threads with a stream each": compat("torch_app", "threads"),
    "two contexts in two threads": compat("driver_app", "contexts"),
    "fork, then CUDA": compat("driver_app", "fork"),
}
PATIENCE = 150.0  # seconds; torch.compile compiles in the first run


@dataclass(frozen=True)
class Outcome:
    """What a program gave; ``code`` is its exit code."""

    sha256: str
    code: int


def outcome(session: Session, lanes: Lanes, program: Program, timeout: float) -> Outcome | None:
    """A program's outcome; None, and a line for the user, where it had none."""
    try:
        digest = str(program.wait_for("result", timeout)["sha256"])
    except ProgramError as problem:
        session.say(str(problem))
        lanes.drop(program)
        return None
    code = program.end()
    lanes.drop(program)
    return Outcome(digest, code)


def finished(program: Program) -> bool:
    """Whether it has nothing more to compute."""
    return bool(program.lines("result")) or not program.alive


def shake(session: Session, lanes: Lanes, programs: list[Program]) -> tuple[dict[int, int], set[int]]:
    """Random shares until all have finished: how many each process got, and which processes were in the lane."""
    choose = random.Random(session.options.seed)
    until = time.monotonic() + min(PATIENCE, max(session.left - 10.0, 20.0))
    given: dict[int, int] = {}
    seen: set[int] = set()
    while not all(finished(program) for program in programs) and time.monotonic() < until:
        for shown in session.steer.ps()["programs"]:
            if not shown.get("spatial"):
                continue
            seen.add(int(shown["pid"]))
            try:
                lanes.remap(int(shown["pid"]), choose.choice(PERCENTS))
            except SteerError:
                continue  # it ended meanwhile
            given[int(shown["pid"])] = given.get(int(shown["pid"]), 0) + 1
        time.sleep(0.05)
    return given, seen


def report(
    session: Session, name: str, plain: list[Outcome | None], shared: Outcome | None, lane: bool, given: int
) -> bool:
    """Rows of one program; whether all is as it should be."""
    first, second = plain
    if first is None or second is None:
        session.row(f"{name}: ran without the runtime", 0, "", target=">= 1")
        return False
    session.row(f"{name}: in the spatial lane", int(lane), "", target=">= 1")
    session.row(f"{name}: shares of the SMs given to it meanwhile", given, "changes")
    if first != second:
        session.row(f"{name}: outputs that differ between two runs without the runtime", 1, "runs", target="== 0")
        return False
    session.row(f"{name}: outputs that differ with the runtime", int(shared != first), "runs", target="== 0")
    return lane and shared == first


def run(session: Session) -> None:
    """The whole experiment."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(session.folder / "inductor")}
    good: dict[str, float] = {}
    with Lanes(session) as lanes:
        runs = [
            {name: lanes.start(f"{name}, {turn}", PLAIN, argv, cache) for name, argv in PROGRAMS.items()}
            for turn in ("without", "without again")
        ]
        plain = {name: [outcome(session, lanes, one[name], PATIENCE) for one in runs] for name in PROGRAMS}
        shared = {name: lanes.start(f"{name}, with", SAME, argv, cache) for name, argv in PROGRAMS.items()}
        given, seen = shake(session, lanes, list(shared.values()))
        for name, program in shared.items():
            pids = program.programs
            result = outcome(session, lanes, program, 1.0)
            lane = all(pid in seen for pid in pids)
            changes = sum(given.get(pid, 0) for pid in pids)
            good[name] = float(report(session, name, plain[name], result, lane, changes))
    plot.bars(session.options.out / "compatibility.png", {"same output in the spatial lane": good}, "1 = same")
