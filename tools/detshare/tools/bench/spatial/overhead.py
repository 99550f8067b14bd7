# SPDX-License-Identifier: Apache-2.0
"""overhead: what the runtime costs a program that has the GPU to itself.

*without*: an MPS client. *with*: the same under ``detshare run --lane spatial``. *plain*: without MPS, for comparison.
All live at the same time, stopped (SIGSTOP) but for the one that is measured, and take turns; each turn gives one
ratio. Main threads are pinned to one CPU: where the scheduler puts them is worth more than what is measured here.
In a turn each way has its time twice, the second time in reverse order: hosts get slower and faster by a third within
a minute, and what does so evenly cancels out.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import decode, kernels, train
from detshare.tools.bench.process import Line, Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import MPS, PLAIN, SETTLE, How, Lanes
from detshare.tools.bench.stats import latencies, percentile, rate, spread

HOWS = {"without": MPS, "with": How("spatial"), "plain": PLAIN}
TARGET = "<= 1.01"
CONTEXTS = 3
"""times as many turns for contexts: one differs by 10 % from the next, and is over in a tenth of a second"""
REST_S = 0.3
"""between the end of a process and the next one's start: the driver cleans up for a while, at the cost of who comes"""


def ns_per_launch(windows: list[Line]) -> float:
    """The median window's."""
    return percentile([window["ns_per_launch"] for window in windows], 50)


def token_us(windows: list[Line]) -> float:
    """The median token."""
    return percentile(latencies(windows), 50)


def ms_per_step(windows: list[Line]) -> float:
    """Of training; a step is 64 images."""
    return 64e3 / rate(windows)


@dataclass(frozen=True)
class Measure:
    """Something that is measured: the program, what its windows give, and the unit."""

    argv: list[str]
    value: Callable[[list[Line]], float]
    unit: str
    longer: float = 1.0


MEASURES = {
    "empty launch": Measure(kernels("launchloop"), ns_per_launch, "ns"),
    "graph launch": Measure(kernels("graphloop", "--batch", 200), ns_per_launch, "ns"),
    "decode step": Measure(decode(0), token_us, "us"),
    "ResNet-50 step": Measure(train("resnet", "--no-benchmark"), ms_per_step, "ms", 1.5),
}


def report(session: Session, name: str, unit: str, seen: dict[str, list[float]]) -> float | None:
    """Rows of one measure; the median ratio of with to without. ``seen``: one value a turn for each way."""
    turns = min(len(values) for values in seen.values()) if len(seen) == len(HOWS) else 0
    if not turns:
        return None
    for way in HOWS:
        session.row(f"{name}: {way}, median of {turns} turns", spread(seen[way][:turns]).median, unit)
    ratios = {
        base: spread([mine / other for mine, other in zip(seen["with"][:turns], seen[base][:turns], strict=True)])
        for base in ("without", "plain")
    }
    session.spread_rows(f"{name}: with / without", ratios["without"], "", target=TARGET)
    session.row(f"{name}: with / plain", ratios["plain"].median, "")
    return ratios["without"].median


def take_turns(session: Session, lanes: Lanes, seen: dict[str, dict[str, list[float]]]) -> None:
    """All measures with living programs, as long as the budget has room."""
    programs: dict[tuple[str, str], Program] = {}
    for name, measure in MEASURES.items():
        for way, how in HOWS.items():
            programs[name, way] = lanes.start(f"{name}, {way}", how, measure.argv)
    lanes.warm(*programs.values())
    cpu = max(os.sched_getaffinity(0))
    for program in programs.values():
        os.sched_setaffinity(program.pid, {cpu})
    session.say("all programs are warm")
    began = session.elapsed
    for turn in range(session.options.rounds):
        for name, measure in MEASURES.items():
            order = list(HOWS)
            if turn % 2:
                order.reverse()
            windows: dict[str, list[Line]] = defaultdict(list)
            for way in (*order, *reversed(order)):
                program = programs[name, way]
                program.go_on()
                seconds = session.options.seconds * measure.longer / 2
                slot = session.slot(f"{name}, {way}", seconds, program, settle=SETTLE)
                program.hold()
                windows[way] += slot.windows[program.name]
            for way in HOWS:
                seen[name][way].append(measure.value(windows[way]))
        session.say(f"turn {turn + 1} of {session.options.rounds}")
        if turn + 1 < session.options.rounds and session.left < 1.05 * (session.elapsed - began) / (turn + 1) + 8.0:
            session.say("the budget has no room for more turns")
            break
    lanes.end(*programs.values())


def contexts(session: Session, lanes: Lanes, seen: dict[str, list[float]]) -> None:
    """The first context of fresh processes, in turns of chance; the first of each way is not counted."""
    chance = random.Random(session.options.seed)  # else each would follow the same one always
    for turn in range(CONTEXTS * session.options.rounds + 1):
        for way in chance.sample(list(HOWS), len(HOWS)):
            time.sleep(REST_S)
            program = lanes.start(f"context, {way}", HOWS[way], kernels("context"))
            took = float(program.wait_for("context", 30.0)["ms"])
            lanes.drop(program)
            if turn:
                seen[way].append(took)


def run(session: Session) -> None:
    """The whole experiment."""
    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    units = {name: measure.unit for name, measure in MEASURES.items()} | {"context creation": "ms"}
    ratios: dict[str, dict[str, float]] = {}
    with Lanes(session) as lanes:
        try:
            contexts(session, lanes, seen["context creation"])
            take_turns(session, lanes, seen)
        finally:
            for name, unit in units.items():
                ratio = report(session, name, unit, seen[name])
                if ratio is not None:
                    ratios[name] = {"without": 1.0, "with": ratio}
    plot.bars(session.options.out / "overhead.png", ratios, "time, without the runtime = 1")
