# SPDX-License-Identifier: Apache-2.0
"""temporal: what set-priority does to a latency program and to the background beside it.

Per pair and round, in an order that rotates: *alone* (the background's host is stopped, its queue has run out),
*default* (both, time-slicing as the driver does it), *managed* (LC high, BE low), *released* (after release).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import DECODE_10, PAIRS, Pair, kernels, small
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import Latency, latencies, latency, rate, spread

SCHEMES = ("alone", "default", "managed", "released")


@dataclass
class Found:
    """Per scheme: the latencies of each round, and all of them; LC's and the background's rate of each round."""

    rounds: dict[str, list[Latency]] = field(default_factory=lambda: defaultdict(list))
    pooled: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    requests: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    back_alone: float | None = None

    def add(self, scheme: str, values: list[float], requests: float, background: float | None) -> None:
        """One slot: latencies in us, LC requests a second, BE items a second."""
        self.requests[scheme].append(requests)
        self.rounds[scheme].append(latency(values))
        self.pooled[scheme] += values
        if background is not None:
            self.rates[scheme].append(background)

    def median(self, scheme: str, which: str) -> float:
        """Median over rounds of ``p50``, ``p99`` or ``max``, microseconds."""
        return spread([getattr(one, which) for one in self.rounds[scheme]]).median


ENOUGH: Final = ">= 1000"
"""requests for a p99: of fewer it is one of the longest few, and says little"""


def prioritise(session: Session, lc: Program, be: Program) -> None:
    """As a user does it, on the living PIDs."""
    session.steer.ctl("set-priority", str(lc.pid), "high")
    session.steer.ctl("set-priority", str(be.pid), "low")


def release(session: Session, *programs: Program) -> None:
    """Default time-slicing again."""
    for program in programs:
        session.steer.release(program.pid)


def rounds(
    session: Session, name: str, seconds: float, lc: Program, be: Callable[[bool], Program | None], counts: bool
) -> Found:
    """All rounds of one pair; ``be(wanted)`` makes the background run or be away."""
    found = Found()
    for turn in range(session.options.rounds):
        first = turn % len(SCHEMES)
        for scheme in SCHEMES[first:] + SCHEMES[:first]:
            background = be(scheme != "alone")
            beside = [background] if background is not None else []
            if scheme == "managed" and background is not None:
                prioritise(session, lc, background)
            else:
                release(session, lc, *beside)
            slot = session.slot(f"{name}: {scheme}", seconds, lc, *beside)
            values = latencies(slot.windows[lc.name])
            speed = None
            if background is not None and counts:
                windows = slot.windows[background.name]
                speed = rate(windows) if windows else 0.0
            found.add(scheme, values, rate(slot.windows[lc.name], "count"), speed)
        release(session, lc, *beside)
        session.say(f"{name}: round {turn + 1} of {session.options.rounds}")
    return found


def run_pair(session: Session, pair: Pair) -> Found:
    """Start both programs, measure all schemes, end them."""
    seconds = session.options.seconds * pair.longer
    be, lc = session.start_all({f"{pair.name}: BE": pair.background, f"{pair.name}: LC": pair.latency})
    for program in (lc, be):
        session.steer.adopted(program.pid)
    lc.hold()
    slot = session.slot(f"{pair.name}: BE alone", session.options.seconds, be)
    lc.go_on()

    def background(wanted: bool) -> Program | None:
        if not wanted:
            be.hold()
            return None
        be.go_on()
        return be

    found = rounds(session, pair.name, seconds, lc, background, True)
    found.back_alone = rate(slot.windows[be.name])
    session.finish(lc, be)
    return found


def run_endless(session: Session) -> Found:
    """An endless kernel as the background: started and ended around each slot, since a held host does not stop it."""
    name = "decode 10 ms + endless kernel"
    [lc] = session.start_all({f"{name}: LC": DECODE_10.latency})
    session.steer.adopted(lc.pid)
    current: list[Program] = []

    def background(wanted: bool) -> Program | None:
        if wanted and not current:
            current.extend(session.start_all({f"{name}: BE": kernels("endless")}))
            session.steer.adopted(current[0].pid)
        if not wanted and current:
            session.finish(current.pop())
        return current[0] if current else None

    found = rounds(session, name, session.options.seconds, lc, background, False)
    background(False)
    session.finish(lc)
    return found


def report(session: Session, pair: Pair, found: Found) -> None:
    """The rows of one pair, with the issue's targets where it sets them."""
    alone = found.median("alone", "p99")
    default = spread(found.rates["default"]).median
    for scheme in SCHEMES:
        managed = scheme == "managed" and pair.judged
        what = f"{pair.name}: {scheme}: LC"
        base = None if scheme == "alone" else found.median("alone", "p50")
        session.row(f"{what} p50", found.median(scheme, "p50"), "us", base)
        session.spread_rows(
            f"{what} p99",
            spread([one.p99 for one in found.rounds[scheme]]),
            "us",
            None if scheme == "alone" else alone,
            "<= 1.05 x baseline" if managed else None,
        )
        pooled = latency(found.pooled[scheme])
        session.row(f"{what} p99 of all rounds together ({pooled.count} requests)", pooled.p99, "us")
        session.row(f"{what} requests behind the p99", pooled.count, "requests", target=ENOUGH if managed else None)
        session.row(f"{what} max", pooled.max, "us")
        if scheme != "alone":
            session.spread_rows(
                f"{pair.name}: {scheme}: BE",
                spread(found.rates[scheme]),
                pair.unit,
                None if scheme == "default" else default,
                ">= 1 x baseline" if managed else None,
            )
    if found.back_alone is not None:
        session.row(f"{pair.name}: BE alone", found.back_alone, pair.unit)
        report_work(session, pair, found, found.back_alone)


def report_work(session: Session, pair: Pair, found: Found, back_alone: float) -> None:
    """GPU work of both together: LC requests x their time alone + BE's rate over its rate alone.

    Where LC cannot keep its period beside BE, a faster LC does more work and leaves BE less: BE's figure alone would
    hide that.
    """
    alone_s = found.median("alone", "p50") / 1e6
    work = {
        scheme: spread(
            [
                requests * alone_s + background / back_alone
                for requests, background in zip(found.requests[scheme], found.rates[scheme], strict=True)
            ]
        ).median
        for scheme in ("default", "managed")
    }
    what = f"{pair.name}: work of both, in GPUs"
    session.row(f"{what}: default", work["default"], "")
    target = ">= 1 x baseline" if pair.judged else None
    session.row(f"{what}: managed", work["managed"], "", work["default"], target)


def report_endless(session: Session, found: Found) -> None:
    """Rows of the endless background."""
    name = "decode 10 ms + endless kernel"
    alone = found.median("alone", "p99")
    for scheme in SCHEMES:
        base = None if scheme == "alone" else alone
        session.spread_rows(f"{name}: {scheme}: LC p99", spread([one.p99 for one in found.rounds[scheme]]), "us", base)
        session.row(f"{name}: {scheme}: LC p50", found.median(scheme, "p50"), "us")
        session.row(f"{name}: {scheme}: LC max", max(found.pooled[scheme]), "us")
    over = found.median("managed", "p99") - alone
    session.row(f"{name}: managed: LC p99 above alone", over, "us", target="<= 1000")


def run(session: Session) -> None:
    """The whole experiment."""
    iterations = session.calibrate(50, "periodic")[0], session.calibrate(687)[0]
    session.manage()
    pairs = (*PAIRS, small(*iterations))
    figures: dict[str, dict[str, float]] = {}
    for pair in pairs:
        found = run_pair(session, pair)
        report(session, pair, found)
        figures[pair.name] = {scheme: found.median(scheme, "p99") for scheme in SCHEMES}
    found = run_endless(session)
    report_endless(session, found)
    figures["decode 10 ms + endless kernel"] = {scheme: found.median(scheme, "p99") for scheme in SCHEMES}
    plot.bars(session.options.out / "temporal.png", figures, "LC p99, us (median over rounds)")
