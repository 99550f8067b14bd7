# SPDX-License-Identifier: Apache-2.0
"""determinism: bits of torch operators and of greedy decodes, alone and in the spatial lane.

In the lane a neighbour fills the GPU and writes its memory, and each program is given another share of the SMs a
hundred times a second. The same operators under MPS with 50 % of the threads are the control: there bits must change,
or the comparison proves nothing. Operators whose bits change from run to run alone are named and not judged.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import decode, kernels, operators
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import MPS_50, PLAIN, How, Lanes
from detshare.tools.bench.spatial.pages import Pages
from detshare.tools.bench.steer import SteerError

SAME = How("spatial", klass="normal")
TOKENS, DECODES = 128, 100
MODEL = ("--digest", "--tokens", TOKENS, "--layers", 6)
"""six layers of the model of `pair`, a batch of eight, for 100 decodes in a minute"""
REMAPS = 100
"""a second, of each program"""
CYCLES = 5
"""of all operators, at least"""
PERCENTS = tuple(range(5, 101, 5))


@dataclass
class Remapper:
    """Gives programs random shares."""

    pages: Pages
    choose: random.Random
    done: int = 0
    seconds: float = 0.0

    def run(self, programs: Sequence[Program], seconds: float) -> None:
        """`REMAPS` a second of each program, for so long; a change is not waited for."""
        begun = time.monotonic()
        turns = round(seconds * REMAPS)
        for turn in range(1, turns + 1):
            for program in programs:
                self.pages.use(program.pid, self.choose.randrange(self.pages.tiers(program.pid)))
                self.done += 1
            time.sleep(max(0.0, begun + turn / REMAPS - time.monotonic()))
        self.seconds += time.monotonic() - begun


def cycles(program: Program, since: float = -1.0) -> list[dict[str, str]]:
    """The digests of all operators of each cycle that began after ``since``."""
    return [line["digests"] for line in program.lines("cycle", since)]


def decodes(program: Program, since: float = -1.0) -> list[list[str]]:
    """The digests of batches of decodes that ended after ``since``: one of each sequence, each with its own prompt."""
    return [line["sequences"] for line in program.lines("digest", since)]


def unstable(seen: Sequence[dict[str, str]]) -> set[str]:
    """Operators that did not give the same bits each time."""
    return {name for name in seen[0] for one in seen if one[name] != seen[0][name]}


def changed(alone: Sequence[dict[str, str]], seen: Sequence[dict[str, str]], judged: set[str]) -> set[str]:
    """Operators that gave other bits than alone at least once."""
    return {name for name in judged for one in seen if one[name] != alone[0][name]}


def until(session: Session, what: str, enough: Any, room: float) -> None:
    """Wait until ``enough()``, or until only ``room`` seconds of the budget are left."""
    while not enough():
        if session.left < room:
            session.say(f"{what}: the budget has no more room")
            return
        time.sleep(0.1)


def alone(session: Session, ops: Program, text: Program) -> tuple[list[dict[str, str]], list[list[str]]]:
    """What both programs give with the GPU to themselves, one after the other."""
    for program, enough in ((ops, lambda: len(cycles(ops)) >= CYCLES), (text, lambda: len(decodes(text)) >= 3)):
        program.go_on()
        until(session, f"{program.name}, alone", enough, 60.0)
        program.hold()
    if not cycles(ops) or not decodes(text):
        raise SteerError("no digests of the programs alone within the budget; next: a larger --budget-s")
    return cycles(ops), decodes(text)


def in_the_lane(
    session: Session, lanes: Lanes, ops: Program, text: Program, load: Program
) -> tuple[list[dict[str, str]], list[list[str]], Remapper]:
    """What both give under the neighbour and remaps."""
    for program in (load, ops, text):
        program.go_on()
    for program in (ops, text):
        for percent in PERCENTS:
            lanes.remap(program.pid, percent)
    wanted = DECODES // 4 if session.options.quick else DECODES
    with Pages(session) as pages:
        remapper = Remapper(pages, random.Random(session.options.seed))
        session.row("spatial lane: sets of SMs to choose from", pages.tiers(ops.pid), "sets", target=">= 10")
        since = time.monotonic()
        while sequences(decodes(text, since)) < wanted or len(cycles(ops, since)) < CYCLES:
            if session.left < 25.0:
                session.say("the budget has no more room for decodes")
                break
            remapper.run([ops, text], 1.0)
    for program in (load, ops, text):
        program.hold()
    return cycles(ops, since), decodes(text, since), remapper


def report_alone(session: Session, ops: Sequence[dict[str, str]], shaky: set[str], text: Sequence[list[str]]) -> None:
    """Rows of what both gave alone."""
    session.row("operators", len(ops[0]), "operators", target=">= 33")
    session.row("operators alone: cycles", len(ops), "cycles", target=f">= {CYCLES}")
    what = f"operators alone: bits differ from run to run ({', '.join(sorted(shaky)) or 'none'})"
    session.row(what, len(shaky), "operators")
    session.row("operators judged", len(ops[0]) - len(shaky), "operators", target=">= 33")
    session.row("decodes alone", sequences(text), "decodes", target=">= 3")
    session.row("decodes alone that differ from the first", differ(text, text), "decodes", target="== 0")


def report_lane(session: Session, lanes: Lanes, remapper: Remapper, programs: Sequence[Program]) -> None:
    """Rows of how the shares changed."""
    session.row("spatial lane: shares given", remapper.done, "changes")
    each = remapper.done / len(programs) / remapper.seconds
    session.row("spatial lane: shares given to each program a second", each, "1/s", REMAPS, ">= 0.95 x baseline")
    for program in programs:
        moved = float(lanes.spatial(program.pid)["remaps"])
        session.row(f"{program.name}: streams moved to another set of SMs", moved, "moves", target="> 0")
        sms = program.lines("ready")[0].get("sms")
        if sms is not None:
            session.row(
                f"{program.name}: SMs that the program sees", float(sms), "SMs", float(session.sms), "== 1 x baseline"
            )


def run(session: Session) -> None:
    """The whole experiment."""
    iterations, _us = session.calibrate(300)
    with Lanes(session) as lanes:
        storm = kernels("saturate", "--iterations", iterations, "--depth", 4, "--storm-mib", 256)
        starts = {
            "operators": (PLAIN, operators()),
            "decode": (PLAIN, decode(0, *MODEL)),
            "operators, MPS 50 %": (MPS_50, operators()),
            "decode, MPS 50 %": (MPS_50, decode(0, *MODEL)),
            "operators, spatial": (SAME, operators()),
            "decode, spatial": (SAME, decode(0, *MODEL)),
            "neighbour": (SAME, storm),
        }
        programs = {name: lanes.start(name, how, argv) for name, (how, argv) in starts.items()}
        lanes.warm(*programs.values())
        session.say("all programs are warm")
        ops_alone, text_alone = alone(session, programs["operators"], programs["decode"])
        shaky = unstable(ops_alone)
        judged = set(ops_alone[0]) - shaky
        report_alone(session, ops_alone, shaky, text_alone)
        half = control(session, programs, (ops_alone, text_alone), judged)
        ops, text = programs["operators, spatial"], programs["decode, spatial"]
        seen, words, remapper = in_the_lane(session, lanes, ops, text, programs["neighbour"])
        other = changed(ops_alone, seen, judged)
        session.row("spatial lane: cycles of all operators", len(seen), "cycles", target=f">= {CYCLES}")
        named = f" ({', '.join(sorted(other))})" if other else ""
        session.row(f"spatial lane: operators whose bits changed{named}", len(other), "operators", target="== 0")
        done = sequences(words)
        session.row(f"spatial lane: decodes of {TOKENS} tokens", done, "decodes", DECODES, ">= 1 x baseline")
        session.row("spatial lane: decodes that differ", differ(text_alone, words), "decodes", target="== 0")
        report_lane(session, lanes, remapper, [ops, text])
        lanes.end(*programs.values())
    figures = {"operators whose bits changed": {"spatial lane": float(len(other)), "MPS 50 %": float(half)}}
    plot.bars(session.options.out / "determinism.png", figures, f"of {len(judged)} operators")


def differ(reference: Sequence[list[str]], seen: Sequence[list[str]]) -> int:
    """How many sequences differ from the same one of the reference's first batch."""
    return sum(mine != other for batch in seen for mine, other in zip(batch, reference[0], strict=True))


def sequences(batches: Sequence[list[str]]) -> int:
    """How many decodes they are."""
    return sum(map(len, batches))


def control(
    session: Session,
    programs: dict[str, Program],
    reference: tuple[list[dict[str, str]], list[list[str]]],
    judged: set[str],
) -> int:
    """The same under MPS with half the threads, where bits must change: of how many operators they do."""
    ops, text = programs["operators, MPS 50 %"], programs["decode, MPS 50 %"]
    for program in (ops, text):
        program.go_on()
    until(session, "MPS 50 %", lambda: len(cycles(ops)) >= 2 and len(decodes(text)) >= 2, 60.0)
    for program in (ops, text):
        program.hold()
    other = changed(reference[0], cycles(ops), judged) if cycles(ops) else set()
    session.row("MPS 50 %: operators whose bits changed", len(other), "operators", target="> 0")
    sms = float(ops.lines("ready")[0]["sms"])
    session.row("MPS 50 %: SMs that the program sees", sms, "SMs")
    found = decodes(text)
    session.row("MPS 50 %: decodes that differ", differ(reference[1], found), "decodes", float(sequences(found)))
    return len(other)
