# SPDX-License-Identifier: Apache-2.0
"""isolation: a kernel of 50 us every 2 ms beside kernels that fill the GPU for 0.1, 0.7, 8 and 90 ms.

*alone*, *time-slicing*, *MPS*, *MPS 50 %* (of the background's threads), *reserve* (class high has the first 32 SMs,
all others the rest) and *reflex* (the background has all SMs while LC is idle, all but the first 24 while it is active;
LC has those 24, and comes in bursts of 40 requests with 100 ms between them). BE is the background.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import kernels
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.figures import Figures
from detshare.tools.bench.spatial.lanes import MPS, MPS_50, PLAIN, SETTLE, How, Lanes, says
from detshare.tools.bench.stats import latencies, rate

SIZES_US = (100, 700, 8_000, 90_000)
DEPTHS = (8, 2, 2, 2)
"""queued at most: about a millisecond of work, two kernels at least"""
RESERVE = 32
REFLEX = 24
"""SMs that LC has to itself while it is active, in the scheme reflex: what BE loses for the length of a burst"""
BURST, IDLE_MS = 40, 100.0
LINGER_US = 3000
"""longer than LC's period: it counts as active for the whole of a burst"""
LONG_US = 5_000
"""BE kernels above that get slots of twice the length, for an exact rate"""
HIGH, LOW = How("spatial", klass="high"), How("spatial", klass="low")
STARTS = {
    "alone": (PLAIN, PLAIN),
    "reserve": (HIGH, LOW),
    "reflex": (HIGH, LOW),
    "MPS": (MPS, MPS),
    "MPS 50 %": (MPS, MPS_50),
    "time-slicing": (PLAIN, PLAIN),
}
"""how LC and BE are started in each scheme"""


def named(us: float) -> str:
    """0.7 ms of 700."""
    return f"{us / 1000:g} ms"


@dataclass
class Isolation:
    """One run of the experiment."""

    session: Session
    lanes: Lanes
    periodic: int
    sizes: tuple[int, ...]
    """iterations of BE's kernels, in the order of SIZES_US"""
    found: Figures = field(default_factory=Figures)

    def start(self, scheme: str) -> tuple[Program, Program]:
        """LC and BE, warm."""
        how_lc, how_be = STARTS[scheme]
        burst = ("--burst", BURST, "--idle-ms", IDLE_MS)
        periodic = kernels("periodic", "--period-ms", 2, "--iterations", self.periodic, *burst)
        # The same blocks under MPS 50 %, where it sees fewer SMs: a kernel is the same work in every scheme.
        words = ("--depth", *DEPTHS, "--sms", self.session.sms)
        saturate = kernels("saturate", "--iterations", *self.sizes, *words)
        be = self.lanes.start(f"{scheme}: BE", how_be, saturate)
        lc = self.lanes.start(f"{scheme}: LC", how_lc, periodic)
        self.lanes.ready(lc, be)
        return lc, be

    def each_size(self, be: Program) -> Iterator[tuple[str, float]]:
        """Each size of BE's kernels in turn, ends with the first again: its name and the seconds of a slot."""
        for index, us in enumerate(SIZES_US):
            yield named(us), self.session.options.seconds * (2 if us > LONG_US else 1)
            asked = time.monotonic()
            be.signal(signal.SIGUSR1)
            wanted = self.sizes[(index + 1) % len(self.sizes)]
            be.wait_for("size", 20.0, asked, accept=says("iterations", wanted))

    def bursts(self, lc: Program) -> None:
        """Switch bursts on or off."""
        asked = time.monotonic()
        lc.signal(signal.SIGUSR1)
        lc.wait_for("bursts", 10.0, asked)

    def both(self, scheme: str, lc: Program, be: Program) -> None:
        """A steady LC beside each size."""
        for size, seconds in self.each_size(be):
            slot = self.session.slot(f"{scheme}: {size}", seconds, lc, be, settle=SETTLE)
            self.found.latencies((scheme, size), latencies(slot.windows[lc.name]))
            self.found.rate((scheme, size, "BE"), rate(slot.windows[be.name]) if slot.windows[be.name] else 0.0)

    def bursting(self, scheme: str, lc: Program, be: Program) -> None:
        """A bursting LC beside each size."""
        self.bursts(lc)
        for size, seconds in self.each_size(be):
            slot = self.session.slot(f"{scheme}, bursts: {size}", max(seconds, 2.0), lc, be, settle=SETTLE)
            self._burst_figures((scheme, "bursts", size), slot.windows[lc.name])
            windows = slot.windows[be.name]
            self.found.rate((scheme, "bursts", size, "BE"), rate(windows) if windows else 0.0)
        self.bursts(lc)

    def _burst_figures(self, key: tuple[str, ...], windows: list[dict[str, object]]) -> None:
        self.found.latencies((*key, "later"), latencies(windows))
        first = [value for window in windows for value in window.get("first_us", ())]  # type: ignore[attr-defined]
        self.found.latencies((*key, "first"), first)

    def lc_alone(self, key: tuple[str, ...], lc: Program, be: Program) -> None:
        """A steady LC, BE's host stopped and its queue run out."""
        be.hold()
        slot = self.session.slot(f"{key[0]}: LC alone", self.session.options.seconds, lc, settle=SETTLE)
        self.found.latencies(key, latencies(slot.windows[lc.name]))
        be.go_on()

    def be_alone(self, scheme: str, lc: Program, be: Program) -> None:
        """BE of each size, LC's host stopped."""
        lc.hold()
        for size, seconds in self.each_size(be):
            slot = self.session.slot(f"{scheme}: BE alone, {size}", seconds, be, settle=SETTLE)
            self.found.rate((scheme, size, "BE alone"), rate(slot.windows[be.name]))
        lc.go_on()

    def measure(self, scheme: str) -> None:
        """All of one scheme in one round."""
        if scheme in ("reserve", "reflex"):
            self.lanes.reserve(RESERVE if scheme == "reserve" else None)
        if scheme == "reflex":
            self.lanes.reflex("high", idle=f"first:{REFLEX}", busy=f"first:{REFLEX}", linger_us=LINGER_US)
            self.lanes.reflex("low", busy=f"rest:{REFLEX}")
        lc, be = self.start(scheme)
        if scheme == "alone":
            self.lc_alone(("alone",), lc, be)
            self.bursts(lc)
            be.hold()
            slot = self.session.slot("alone, bursts", max(self.session.options.seconds, 2.0), lc, settle=SETTLE)
            self._burst_figures(("alone", "bursts"), slot.windows[lc.name])
            be.go_on()
            self.bursts(lc)
            self.be_alone(scheme, lc, be)
        elif scheme == "reflex":
            self.bursting(scheme, lc, be)
            self.lanes.reset()
        else:
            if scheme == "reserve":
                self.lc_alone(("alone on the same SMs",), lc, be)
                self.be_alone(scheme, lc, be)
            self.both(scheme, lc, be)
            if scheme == "MPS":
                self.bursting(scheme, lc, be)
        if scheme == "reserve":
            self.lanes.reserve(None)
        self.lanes.end(lc, be)


def report(session: Session, found: Figures, sms: int) -> None:
    """All rows that what was measured gives."""
    found.report(session, "LC alone", ("alone",))
    found.report(session, f"LC alone on the first {RESERVE} SMs", ("alone on the same SMs",), ("alone",))
    for size in map(named, SIZES_US):
        alone = ("alone", size, "BE alone")
        if not found.has(alone):
            continue
        session.row(f"BE {size}: alone", found.median(alone, "rate"), "kernels/s")
        for scheme in STARTS:
            key = (scheme, size)
            if not found.has(key):
                continue
            found.report(session, f"BE {size}: {scheme}: LC", key, ("alone",))
            base = found.median(alone, "rate")
            session.row(f"BE {size}: {scheme}: BE", found.median((*key, "BE"), "rate"), "kernels/s", base)
        report_reserve(session, found, size, sms)
        report_bursts(session, found, size)


def report_reserve(session: Session, found: Figures, size: str, sms: int) -> None:
    """The issue's targets for the reserve."""
    key, same, mps = ("reserve", size), ("alone on the same SMs",), ("MPS", size)
    if not found.has(key, same):
        return
    p99 = found.median(key, "p99")
    what = f"BE {size}: reserve: LC p99"
    session.row(f"{what} against alone on the same SMs", p99, "us", found.median(same, "p99"), "<= 1.2 x baseline")
    if found.has(mps):
        base = found.median(mps, "p99")
        session.row(f"{what} against MPS", p99, "us", base, "<= 0.333333 x baseline" if base > 600 else None)
    rest = found.median((*key, "BE alone"), "rate")
    session.row(f"BE {size}: reserve: BE alone on the other {sms - RESERVE} SMs", rest, "kernels/s")
    share = found.median(("alone", size, "BE alone"), "rate") * (sms - RESERVE) / sms
    rates = found.median((*key, "BE"), "rate")
    session.row(f"BE {size}: reserve: BE against its share of the SMs", rates, "kernels/s", share, ">= 0.95 x baseline")


def report_bursts(session: Session, found: Figures, size: str) -> None:
    """LC in bursts: first and later requests apart, and BE with the issue's target."""
    for scheme in ("MPS", "reflex"):
        key = (scheme, "bursts", size)
        if not found.has((*key, "later")):
            continue
        for which in ("first", "later"):
            what = f"BE {size}: {scheme}, bursts: LC, {which} requests"
            found.report(session, what, (*key, which), ("alone", "bursts", which))
        base = found.median(("alone", size, "BE alone"), "rate")
        target = ">= 0.85 x baseline" if scheme == "reflex" else None
        rates = found.median((*key, "BE"), "rate")
        session.row(f"BE {size}: {scheme}, bursts: BE", rates, "kernels/s", base, target)


def schemes(session: Session, lanes: Lanes) -> Iterator[str]:
    """The schemes of all rounds, in an order that rotates, as long as the budget has room for the longest so far."""
    names, longest = list(STARTS), 0.0
    for turn in range(session.options.rounds):
        first = turn % len(names) if turn else 0
        for name in names[first:] + names[:first]:
            if session.left < 1.1 * longest + 5.0:
                session.say(f"round {turn + 1}: {name} does not fit into the budget any more")
                return
            began = session.elapsed
            yield name
            longest = max(longest, session.elapsed - began)
        session.say(f"round {turn + 1} of {session.options.rounds}")


def run(session: Session) -> None:
    """The whole experiment."""
    periodic = session.calibrate(50, "periodic")[0]
    iterations, us = session.calibrate(687)
    sizes = tuple(max(1, round(iterations * size / us)) for size in SIZES_US)
    with Lanes(session) as lanes:
        one = Isolation(session, lanes, periodic, sizes)
        try:
            for scheme in schemes(session, lanes):
                one.measure(scheme)
        finally:
            report(session, one.found, session.sms)
    figures = {
        f"BE {size}": one.found.table([(scheme, (scheme, size)) for scheme in STARTS], "p99")
        for size in map(named, SIZES_US)
    }
    plot.bars(session.options.out / "isolation.png", figures, "LC p99, us (median over rounds)")
