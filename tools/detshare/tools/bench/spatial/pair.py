# SPDX-License-Identifier: Apache-2.0
"""pair: Llama-architecture decode (LC) beside ResNet-50 training (BE), and a sweep of what BE does while LC is active.

*alone*, *time-slicing*, *MPS*, *MPS 50 %* (of BE's threads), *temporal* (set-priority high and low on plain programs)
and *spatial* (classes high and low, with their default reflexes), each with a token every 100, 10 and 3 ms and back to
back. The sweep: in the spatial lane BE is held while LC is active, or has 8, 16, 32 or 64 SMs; by default the daemon
chooses between the first and 16 SMs by the share of time in which LC is active.

The targets are asked of the spatial lane and of the lane that --lane auto takes for LC after this run.

All programs live through the whole experiment; those that are not measured are stopped (SIGSTOP).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from detshare.runtime.profiles import Lane, Profiles, choose, key
from detshare.tools.bench import plot
from detshare.tools.bench.catalog import decode, train
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.figures import Figures
from detshare.tools.bench.spatial.lanes import MPS, MPS_50, PLAIN, SETTLE, How, Lanes, says
from detshare.tools.bench.stats import latencies, rate
from detshare.tools.bench.temporal import prioritise, release

PERIODS_MS = (10.0, 3.0, 0.0, 100.0)
"""time between two tokens; 0: back to back"""
JUDGED = "10 ms"
CHOICE = 1.6
"""seconds after which the daemon has chosen what BE does by LC's share of the time: a window of 1 s, looked at each
0.25 s, and some for what was launched before"""
LEARNED = 5.0
"""seconds within which the daemon has taken in what a program that ended showed"""
SLOW_MS = 50.0
"""slots of longer periods are doubled, for enough tokens"""
SWEEP = {"hold": "hold", **{f"{sms} SMs": f"first:{sms}" for sms in (8, 16, 32, 64)}}
HIGH, LOW = How("spatial", klass="high"), How("spatial", klass="low")
STARTS = {
    "plain LC": PLAIN,
    "plain BE": PLAIN,
    "MPS LC": MPS,
    "MPS BE": MPS,
    "MPS 50 % BE": MPS_50,
    "spatial LC": HIGH,
    "spatial BE": LOW,
}
SCHEMES = {
    "alone": ("plain LC", None),
    "spatial": ("spatial LC", "spatial BE"),
    "temporal": ("plain LC", "plain BE"),
    "MPS": ("MPS LC", "MPS BE"),
    "MPS 50 %": ("MPS LC", "MPS 50 % BE"),
    "time-slicing": ("plain LC", "plain BE"),
}
BASELINES = ("time-slicing", "MPS", "MPS 50 %")
BE_ALONE = ("BE alone",)


def named(period_ms: float) -> str:
    """Of a period, in words."""
    return f"{period_ms:g} ms" if period_ms else "back to back"


@dataclass
class Bench:
    """The living programs and what was measured of them."""

    session: Session
    lanes: Lanes
    programs: dict[str, Program] = field(default_factory=dict)
    found: Figures = field(default_factory=Figures)
    auto: str | None = None

    def start(self) -> None:
        """Start all, and stop each as soon as it is warm. The spatial LC comes last: it would starve the others."""
        first = {name: how for name, how in STARTS.items() if how != HIGH}
        for starts in (first, {name: HIGH for name in STARTS if name not in first}):
            for name, how in starts.items():
                # 1.4 billion parameters; batch 64: kernels of 50 to 300 us
                argv = decode(*PERIODS_MS) if name.endswith("LC") else train("resnet", "--no-benchmark")
                self.programs[name] = self.lanes.start(name, how, argv)
            self.lanes.warm(*(self.programs[name] for name in starts))
        for name in ("plain LC", "plain BE"):
            self.session.steer.adopted(self.programs[name].pid)
        self.session.say("all programs are warm")

    def each_period(self, lc: Program) -> Iterator[tuple[str, float]]:
        """Each period of LC in turn, ends with the first again: its name and the seconds of a slot."""
        for index, period in enumerate(PERIODS_MS):
            yield named(period), self.session.options.seconds * (2 if period > SLOW_MS else 1)
            asked, wanted = time.monotonic(), PERIODS_MS[(index + 1) % len(PERIODS_MS)]
            lc.signal(signal.SIGUSR1)
            lc.wait_for("period", 20.0, asked, accept=says("period_ms", wanted))

    def slots(self, what: str, lc: Program, be: Program | None, settle: float = SETTLE) -> None:
        """One slot for each period; figures under (what, period)."""
        for program in (lc, be):
            if program is not None:
                program.go_on()
        for period, seconds in self.each_period(lc):
            beside = [be] if be is not None else []
            slot = self.session.slot(f"{what}: {period}", seconds, lc, *beside, settle=settle)
            tokens = slot.windows[lc.name]
            self.found.latencies((what, period), latencies(tokens))
            self.found.rate((what, period, "tokens"), rate(tokens, "count") if tokens else 0.0)
            if be is not None:
                windows = slot.windows[be.name]
                self.found.rate((what, period, "BE"), rate(windows) if windows else 0.0)
        for program in (lc, be):
            if program is not None:
                program.hold()

    def scheme(self, name: str) -> None:
        """All periods of one scheme."""
        lc, be = SCHEMES[name]
        first, second = self.programs[lc], self.programs[be] if be is not None else None
        if name == "temporal" and second is not None:
            prioritise(self.session, first, second)
        self.slots(name, first, second, CHOICE if name == "spatial" else SETTLE)
        if name == "temporal" and second is not None:
            release(self.session, first, second)
        if name == "alone":
            background = self.programs["plain BE"]
            background.go_on()
            slot = self.session.slot("BE alone", self.session.options.seconds, background, settle=SETTLE)
            self.found.rate(BE_ALONE, rate(slot.windows[background.name]))
            background.hold()

    def sweep(self, name: str) -> None:
        """All periods with one setting of BE while LC is active."""
        self.lanes.reflex("low", busy=SWEEP[name])
        self.slots(f"sweep: {name}", self.programs["spatial LC"], self.programs["spatial BE"])
        self.lanes.reflex("low")

    def finish(self) -> None:
        """End all; ProgramError where one did not end well."""
        self.lanes.end(*self.programs.values())
        self.auto = self.choice()

    def choice(self) -> str | None:
        """The lane that --lane auto takes for LC's next run; None: the daemon has not taken in what this one showed."""
        name = key(decode(*PERIODS_MS))
        until = time.monotonic() + LEARNED
        while (profile := Profiles(Path(self.session.steer.run_dir) / "profiles.json").get(name)) is None:
            if time.monotonic() > until:
                return None
            time.sleep(0.1)
        lane, why = choose(name, profile)
        self.session.mark("auto", lane=lane, why=why)
        self.session.say(f"--lane auto takes the {lane} lane for LC: {why}")
        return lane


def report(session: Session, found: Figures, auto: str | None) -> None:
    """All rows that what was measured gives; `auto`: the lane that --lane auto takes for LC."""
    if not found.has(BE_ALONE):
        return
    be_alone = found.median(BE_ALONE, "rate")
    session.row("BE alone", be_alone, "images/s")
    names = [*SCHEMES, *(f"sweep: {name}" for name in SWEEP)]
    for period in map(named, PERIODS_MS):
        for name in names:
            key = (name, period)
            if not found.has(key):
                continue
            what = f"a token every {period}" if period[0].isdigit() else "tokens back to back"
            found.report(session, f"{what}: {name}: token", key, None if name == "alone" else ("alone", period))
            if name != "alone":
                session.row(f"{what}: {name}: BE", found.median((*key, "BE"), "rate"), "images/s", be_alone)
    judge(session, found, be_alone, Lane.SPATIAL, "spatial")
    if auto is not None:
        judge(session, found, be_alone, auto, f"--lane auto ({auto})")
    best(session, found)


def judge(session: Session, found: Figures, be_alone: float, lane: str, name: str) -> None:
    """The issue's targets for a lane, under that name."""
    mine, alone = (lane, JUDGED), ("alone", JUDGED)
    baselines = [(other, JUDGED) for other in BASELINES]
    if not found.has(mine, alone, *baselines):
        return
    what = f"a token every {JUDGED}: {name}"
    p99 = found.median(mine, "p99")
    session.row(f"{what}: token p99 against alone", p99, "us", found.median(alone, "p99"), "<= 1.15 x baseline")
    best_p99, rival = min((found.median(key, "p99"), key[0]) for key in baselines)
    session.row(f"{what}: token p99 against the best baseline ({rival})", p99, "us", best_p99, "< 1 x baseline")
    images, tokens = found.median((*mine, "BE"), "rate"), found.median((*mine, "tokens"), "rate")
    share = tokens * mean(found.pooled[mine]) / 1e6
    session.row(f"{what}: share of time that LC is active", 100 * share, "%")
    bound = be_alone * (1 - share)
    session.row(f"{what}: BE against alone x (1 - that share)", images, "images/s", bound, ">= 0.93 x baseline")
    least = be_alone * (1 - tokens * found.median(alone, "p50") / 1e6)
    session.row(f"{what}: BE against the same if tokens took LC's time alone", images, "images/s", least)
    half = found.median(("MPS 50 %", JUDGED, "BE"), "rate")
    session.row(f"{what}: BE against MPS 50 %", images, "images/s", half, "> 1 x baseline")


def best(session: Session, found: Figures) -> None:
    """The sweep's setting with the most images among those that keep the token's target."""
    alone = ("alone", JUDGED)
    tried = [name for name in SWEEP if found.has((f"sweep: {name}", JUDGED), alone)]
    kept = [
        (found.median((f"sweep: {name}", JUDGED, "BE"), "rate"), name)
        for name in tried
        if found.median((f"sweep: {name}", JUDGED), "p99") <= 1.15 * found.median(alone, "p99")
    ]
    if kept:
        images, name = max(kept)
        session.row(f"sweep, a token every {JUDGED}: most images within 1.15x alone ({name})", images, "images/s")
    elif tried:
        session.say("no setting of the sweep keeps the token within 1.15x alone")


def work(session: Session, bench: Bench) -> None:
    """All rounds of all schemes with the sweep after the first round, as long as the budget has room."""
    names, longest = list(SCHEMES), 0.0
    jobs = [(bench.scheme, name) for name in names] + [(bench.sweep, name) for name in SWEEP]
    for turn in range(1, session.options.rounds):
        first = turn % len(names)
        jobs += [(bench.scheme, name) for name in names[first:] + names[:first]]
    for index, (job, name) in enumerate(jobs):
        if session.left < 1.1 * longest + 10.0:
            session.say(f"the budget is used up: {name} and {len(jobs) - index - 1} more are left out")
            return
        began = session.elapsed
        job(name)
        longest = max(longest, session.elapsed - began)


def run(session: Session) -> None:
    """The whole experiment."""
    with Lanes(session) as lanes:
        bench = Bench(session, lanes)
        try:
            bench.start()
            work(session, bench)
            bench.finish()
        finally:
            report(session, bench.found, bench.auto)
    names = [*SCHEMES, *(f"sweep: {name}" for name in SWEEP)]
    panels: dict[str, dict[str, tuple[float, float]]] = {}
    for period in map(named, PERIODS_MS):
        tokens = bench.found.table([(name, (name, period)) for name in names], "p99")
        images = bench.found.table([(name, (name, period, "BE")) for name in names], "rate")
        panels[period] = {name: (images.get(name, 0.0), p99) for name, p99 in tokens.items()}
    labels = ("BE, images/s", "token p99, us (a triangle: above the scale)")
    plot.points(session.options.out / "pair.png", panels, labels, 2.0)
