# SPDX-License-Identifier: Apache-2.0
"""live-change: where kernels run after ``detshare-ctl set-sm``, and what 1000 changes under load do to a program.

A census program's kernels write their SMs and their start. The SMs of each share are what it uses in a calm while under
it; they must be as many as ``ps`` says. Then no kernel that starts 2 ms after a command returned, and before the next
one, may use another. A kernel's start counts as the latest that the two clocks allow.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import census, kernels
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import How, Lanes
from detshare.tools.bench.stats import percentile

GRACE = 0.002
"""seconds after a command's return from which no kernel may start elsewhere"""
PERCENTS = (7, 13, 25, 50, 75, 100)
CALM, LOOK = 0.1, 0.25
"""seconds that a share stands before its SMs are looked at, and that they are"""
BY_COMMAND = 20
CHANGES = 1000
SAME = How("spatial", klass="normal")


@dataclass(frozen=True)
class Kernel:
    """One kernel of the census: its start, CLOCK_MONOTONIC seconds, at least and at most, and its SMs."""

    first: float
    last: float
    sms: frozenset[int]


@dataclass(frozen=True)
class Change:
    """One command: when it was given and when it returned, and the share."""

    asked: float
    returned: float
    percent: int


def kernels_of(windows: Iterable[dict[str, Any]], sets: Iterable[dict[str, Any]]) -> list[Kernel]:
    """The kernels of a census program's windows, in their order."""
    numbers = {line["number"]: frozenset(line["sms"]) for line in sets}
    found = []
    for window in windows:
        low, high = window["offset_ns"]
        for start, number in zip(window["starts"], window["sets"], strict=True):
            ns = window["base"] + 1000 * start
            found.append(Kernel((ns + low) / 1e9, (ns + high) / 1e9, numbers[number]))
    return found


def between(found: Sequence[Kernel], begin: float, end: float) -> list[Kernel]:
    """Those that may have started after ``begin`` and surely started before ``end``."""
    return [kernel for kernel in found if kernel.last >= begin and kernel.last < end]


def outside(
    found: Sequence[Kernel], changes: Sequence[Change], allowed: dict[int, frozenset[int]]
) -> tuple[int, list[float]]:
    """How many kernels the rule was tried on, and for those that broke it how long after the command they started.

    A kernel may break it with the command before the next one's start only: from then on two shares are right.
    """
    tried, late = 0, []
    for change, following in zip(changes, [*changes[1:], None], strict=True):
        end = following.asked if following is not None else float("inf")
        ruled = between(found, change.returned + GRACE, end)
        tried += len(ruled)
        late += [kernel.last - change.returned for kernel in ruled if not kernel.sms <= allowed[change.percent]]
    return tried, late


def last_outside(found: Sequence[Kernel], change: Change, end: float, allowed: frozenset[int]) -> float:
    """Seconds from a command's return to the start of the last kernel outside; 0 where none started after it."""
    starts = [k.last for k in found if change.returned <= k.last < end and not k.sms <= allowed]
    return max(starts, default=change.returned) - change.returned


class Census:
    """The census program and what it said so far."""

    def __init__(self, session: Session, lanes: Lanes) -> None:
        self.session, self.lanes = session, lanes
        self.program: Program = lanes.start("census", SAME, census())
        self.allowed: dict[int, frozenset[int]] = {}

    def found(self, since: float) -> list[Kernel]:
        """The kernels of the windows from ``since`` on; waits for the window that holds this moment."""
        self.program.wait_for("window", 10.0, time.monotonic(), "t1")
        return kernels_of(self.program.lines("window", since, "t1"), self.program.lines("set"))

    def set_sm(self, percent: int, by_command: bool = False) -> Change:
        """Give the command, as a user does or by the socket."""
        asked = time.monotonic()
        if by_command:
            self.session.steer.ctl("set-sm", str(self.program.pid), str(percent))
        else:
            self.session.steer.verb("set-sm", self.program.pid, percent=percent)
        change = Change(asked, time.monotonic(), percent)
        self.session.mark("set-sm", percent=percent, asked=round(asked, 6), returned=round(change.returned, 6))
        return change

    def learn(self) -> None:
        """The SMs of each share, with rows that compare their number with what `ps` says."""
        for percent in PERCENTS:
            change = self.set_sm(percent)
            time.sleep(CALM + LOOK)
            begin = change.returned + CALM
            used = [k.sms for k in between(self.found(begin), begin, begin + LOOK)]
            self.allowed[percent] = frozenset().union(*used)
            told = float(self.lanes.spatial(self.program.pid)["idle_sms"])
            what = f"SMs that {len(used)} kernels used under set-sm {percent}"
            self.session.row(what, len(self.allowed[percent]), "SMs", told, "== 1 x baseline")

    def rule(self, name: str, changes: Sequence[Change], timed: Sequence[Change]) -> None:
        """Rows of the rule for some changes, and of how long some of them took."""
        found = self.found(changes[0].asked)
        tried, late = outside(found, changes, self.allowed)
        ends = [following.asked for following in changes[1:]] + [float("inf")]
        pairs = zip(changes, ends, strict=True)
        last = [last_outside(found, one, end, self.allowed[one.percent]) for one, end in pairs]
        took = [(one.returned - one.asked) * 1e3 for one in timed]
        session = self.session
        session.row(f"{name}: changes", len(changes), "changes")
        session.row(f"{name}: kernels that started 2 ms after a command's return", tried, "kernels", target=">= 100")
        session.row(f"{name}: of these with an SM outside", len(late), "kernels", target="== 0")
        session.row(f"{name}: return to the start of the last kernel outside, longest", max(last) * 1e3, "ms")
        session.row(f"{name}: command to return, p50", percentile(took, 50), "ms")
        session.row(f"{name}: command to return, p99", percentile(took, 99), "ms")


def by_command(census_: Census, name: str, choose: random.Random) -> None:
    """Changes by ``detshare-ctl``, each to 25 % from another share."""
    changes, timed = [], []
    for _ in range(BY_COMMAND):
        changes.append(census_.set_sm(choose.choice([p for p in PERCENTS if p > 25])))
        time.sleep(0.02)
        timed.append(census_.set_sm(25, by_command=True))
        changes.append(timed[-1])
        time.sleep(0.03)
    census_.rule(name, changes, timed)


def under_load(session: Session, lanes: Lanes, census_: Census, choose: random.Random, iterations: int) -> None:
    """1000 changes of two programs beside kernels that fill the GPU."""
    load = lanes.start("load", SAME, kernels("saturate", "--iterations", iterations, "--depth", 2))
    verify = lanes.start("verify", SAME, kernels("verify", "--iterations", iterations))
    lanes.ready(load, verify)
    by_command(census_, "set-sm 25 by detshare-ctl, GPU full", choose)
    wanted = CHANGES // 4 if session.options.quick else CHANGES
    changes: list[Change] = []
    begun = time.monotonic()
    done = 0
    while done < wanted and session.left > 15.0:
        percent = choose.choice(PERCENTS)
        if choose.random() < 0.5:
            changes.append(census_.set_sm(percent))
        else:
            session.steer.verb("set-sm", verify.pid, percent=percent)
        done += 1
        time.sleep(choose.choice((0.0, 0.002, 0.01)))
    seconds = time.monotonic() - begun
    session.row("random changes under load", done, "changes", float(wanted), ">= 1 x baseline")
    session.row("random changes under load: changes a second", done / seconds, "1/s")
    census_.rule("random changes of the census under load", changes, changes)
    for program in (census_.program, verify):
        what = f"{program.name}: streams moved to another set of SMs"
        session.row(what, float(lanes.spatial(program.pid)["remaps"]), "moves", target="> 0")
    answer, counted, _ = lanes.end(verify, census_.program, load)
    session.row("integer kernels under the changes: wrong answers", int(answer["wrong"]), "kernels", target="== 0")
    session.row("integer kernels under the changes: right answers", int(answer["correct"]), "kernels", target="> 0")
    session.row("census: blocks that did not run", int(counted["lost"]), "blocks", target="== 0")
    session.row("census: kernels", int(counted["kernels"]), "kernels", target="> 0")


def run(session: Session) -> None:
    """The whole experiment."""
    iterations, _us = session.calibrate(687)
    choose = random.Random(session.options.seed)
    with Lanes(session) as lanes:
        one = Census(session, lanes)
        lanes.ready(one.program)
        one.learn()
        by_command(one, "set-sm 25 by detshare-ctl", choose)
        under_load(session, lanes, one, choose, iterations)
    sizes = {f"{percent} %": float(len(sms)) for percent, sms in one.allowed.items()}
    plot.bars(session.options.out / "live-change.png", {"SMs used under set-sm": sizes}, "SMs")
