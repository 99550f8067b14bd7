# SPDX-License-Identifier: Apache-2.0
"""park-compat: programs of many kinds, parked at random points, give the bits that they give when nobody parks them.

All programs of a lane run side by side. Each is asked to park at random times, a quarter of them is brought back by
hand, the others come back by their next call. Rounds are parks.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from detshare.tools.bench.catalog import compat
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import PLAIN, How, Lanes
from detshare.tools.bench.steer import SteerError

__all__ = ["run"]

EXPANDABLE: Final = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
PROGRAMS: Final[dict[str, tuple[list[str], Mapping[str, str]]]] = {
    "PyTorch training": (compat("torch_app", "eager"), {}),
    "PyTorch training, expandable segments": (compat("torch_app", "eager"), EXPANDABLE),
    "transformers decode": (compat("transformers_app"), {}),
    "transformers decode, expandable segments": (compat("transformers_app"), EXPANDABLE),
    "timm training": (compat("timm_app"), {}),
    "CUDA graphs": (compat("torch_app", "graphs"), {}),
    "four threads with a stream each": (compat("torch_app", "threads"), {}),
    "Triton": (compat("triton_app"), {}),
    "CuPy": (compat("cupy_app"), {}),
    "JAX": (compat("jax_app"), {}),
    "IPC of PyTorch, two processes": (compat("torch_app", "ipc"), {}),
    "IPC of the driver, two processes": (compat("ipc_app"), {}),
}
LANES: Final = ("temporal", "spatial")
ROUNDS_A_PARK: Final = 16
"""pieces of work that a program does for each park that it is to have, and the time between two"""
PAUSE_MS: Final = 20
GAP_S: Final = (0.03, 0.13)
"""between two requests to a program"""
PATIENCE: Final = 240.0
"""seconds for a lane"""
LEAST_S: Final = 60.0
"""a lane for which less is left is left out"""


@dataclass
class Shaken:
    """A program under parks. `due`: when its next request is."""

    name: str
    program: Program
    due: dict[int, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether it has nothing more to compute."""
        return bool(self.program.lines("result")) or not self.program.alive


def environment(parks: int, pause_ms: int, more: Mapping[str, str]) -> dict[str, str]:
    """How long a program is to be."""
    return {"CASE_ROUNDS": str(parks * ROUNDS_A_PARK), "CASE_PAUSE_MS": str(pause_ms), **more}


def start(lanes: Lanes, lane: str, parks: int) -> list[Shaken]:
    """All programs in a lane, those that can be parked; `plain`: without DetShare."""
    started = []
    for name, (argv, more) in PROGRAMS.items():
        how, pause = (PLAIN, 0) if lane == "plain" else (How(lane, park=True), PAUSE_MS)
        started.append(Shaken(name, lanes.start(f"{name}, {lane}", how, argv, environment(parks, pause, more))))
    return started


def shake(session: Session, programs: list[Shaken], dice: random.Random, until: float) -> None:
    """Ask each at random times, until all have finished."""
    while time.monotonic() < until and not all(each.over for each in programs):
        now = time.monotonic()
        for each in programs:
            if each.over or not each.program.lines("ready"):
                continue
            for pid in each.program.programs:
                if each.due.setdefault(pid, now + dice.uniform(*GAP_S)) <= now:
                    each.due[pid] = now + dice.uniform(*GAP_S)
                    ask(session, pid, "resume" if dice.random() < 0.25 else "park")
        time.sleep(0.002)


def ask(session: Session, pid: int, verb: str) -> None:
    """Nobody waits for a park: what came of it is counted at the end."""
    with contextlib.suppress(SteerError):  # it is back already, or has no memory yet
        session.steer.verb(verb, pid, **({"timeout": 0.0} if verb == "park" else {}))


def result(session: Session, program: Program, timeout: float) -> str | None:
    """The digest of all that it computed; None, and a line for the user, where it has none."""
    try:
        return str(program.wait_for("result", timeout)["sha256"])
    except ProgramError as problem:
        session.say(str(problem))
        return None


def parks_of(session: Session, programs: list[Shaken]) -> dict[str, tuple[int, int]]:
    """Of each program: parks of the process that had fewest, and bytes that can leave, of all its processes."""
    time.sleep(1.0)  # two looks of the daemon
    shown = {int(each["pid"]): each.get("parking") or {} for each in session.steer.ps()["programs"]}
    found = {}
    for each in programs:
        mine = [shown.get(pid, {}) for pid in each.program.programs]
        found[each.name] = (min(m.get("parks", 0) for m in mine), sum(m.get("parkable_bytes", 0) for m in mine))
    return found


def again(session: Session, lanes: Lanes, name: str, parks: int) -> str | None:
    """The digest of one more run that nobody parks."""
    argv, more = PROGRAMS[name]
    program = lanes.start(f"{name}, plain again", PLAIN, argv, environment(parks, 0, more))
    digest = result(session, program, max(session.left, 30.0))
    lanes.drop(program)
    return digest


def report(session: Session, lanes: Lanes, lane: str, programs: list[Shaken], plain: Mapping[str, str | None],
           parks: int) -> None:  # fmt: skip
    """Rows of a lane; ends its programs."""
    had = parks_of(session, programs)
    late = {each.name for each in programs if not each.over}
    digests = {each.name: result(session, each.program, 0.1) for each in programs if each.name not in late}
    lanes.drop(*(each.program for each in programs))
    for name, (count, size) in had.items():
        session.mark("parked", program=name, lane=lane, parks=count, bytes=size)
        if name in late or plain[name] is None:
            session.row(f"{name}, {lane}: left out for want of time", int(name in late), "")
            continue
        digest = digests[name]
        session.row(f"{name}, {lane}: ended before its result", int(digest is None), "", target="== 0")
        differs = digest != plain[name]
        if differs and digest is not None and again(session, lanes, name, parks) != plain[name]:
            session.row(f"{name}, {lane}: its output differs without parks too, so it says nothing", 1, "")
            continue
        session.row(f"{name}, {lane}: parks, of {size / 2**20:.0f} MiB", count, "parks", target=f">= {parks}")
        session.row(f"{name}, {lane}: outputs that differ from never parked", int(differs), "", target="== 0")


def run(session: Session) -> None:
    """The whole experiment. The plain programs run before the others: beside them a park waits for its turns."""
    parks, dice = session.options.rounds, random.Random(session.options.seed)
    with Lanes(session) as lanes:
        alone = start(lanes, "plain", parks)
        plain = {each.name: result(session, each.program, max(session.left, 30.0)) for each in alone}
        lanes.drop(*(each.program for each in alone))
        for name in (name for name, digest in plain.items() if digest is None):
            session.row(f"{name}: ran without DetShare", 0, "", target=">= 1")
        for number, lane in enumerate(LANES):
            if session.left < LEAST_S and number:
                session.say(f"{lane} lane left out: {session.left:.0f} s are left")
                session.row(f"{lane} lane left out for want of time", 1, "")
                continue
            programs = start(lanes, lane, parks)
            shake(session, programs, dice, time.monotonic() + min(PATIENCE, max(session.left - 15.0, 30.0)))
            report(session, lanes, lane, programs, plain, parks)
