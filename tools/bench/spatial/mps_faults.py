# SPDX-License-Identifier: Apache-2.0
"""mps-faults: 100 tenants killed with SIGKILL beside a running LC, one at a time: in mid-kernel, in mid-hold, in turn.

LC is a kernel of 50 us every 2 ms on the first 32 SMs; a tenant's kernels of 20 ms fill the others back to back, so
that it is in mid-kernel whenever it is killed. The next tenant is the newcomer, started right after the kill. At the
end the MPS server itself is killed: the daemon has to name whom it took along, and a newcomer has to start.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field

from detshare.runtime.mps import Mps, MpsError
from detshare.tools.bench import plot
from detshare.tools.bench.catalog import kernels
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import How, Lanes
from detshare.tools.bench.stats import latencies, latency, percentile
from detshare.tools.bench.steer import SteerError

KILLS = 100
RESERVE = 32
TENANT_US = 20_000
CALM = 2.5
"""seconds of LC beside a tenant that is not killed"""
START = 20.0
"""seconds after which a newcomer counts as refused"""
HIGH, LOW = How("spatial", klass="high"), How("spatial", klass="low")
FELL = ("MPS server", "MPS control daemon")
"""how the daemon's events about a fall begin"""


@dataclass
class Faults:
    """One run of the experiment."""

    session: Session
    lanes: Lanes
    iterations: int
    started: list[float] = field(default_factory=list)
    """seconds from a kill to the newcomer's first finished kernels"""
    refused: int = 0
    killed: dict[str, int] = field(default_factory=lambda: {"kernel": 0, "hold": 0})
    idle: int = 0
    """killed without work in flight: such a kill proves nothing"""
    servers: list[int] = field(default_factory=list)
    """PIDs of the MPS servers that were seen, in the order of their coming"""

    def __post_init__(self) -> None:
        self._mps = Mps(self.session.steer.run_dir / "mps")

    def look(self) -> None:
        """Note a server that was not seen before."""
        if not self._mps.adopt():
            return
        try:
            self.servers += [pid for pid in self._mps.server_list() if pid not in self.servers]
        except MpsError as problem:
            self.session.say(str(problem))

    def tenant(self, since: float | None) -> Program | None:
        """A new tenant, warm; ``since``: when the one before was killed. None where it was refused."""
        words = ("--iterations", self.iterations, "--depth", 2, "--warm", 1)
        program = self.lanes.start("tenant", LOW, kernels("saturate", *words))
        try:
            ready = program.ready(START)
            self.lanes.spatial(program.pid)
        except (ProgramError, SteerError) as problem:
            self.session.say(f"a newcomer was refused: {problem}")
            self.lanes.drop(program)
            self.refused += 1
            return None
        if since is not None:
            self.started.append(float(ready["t"]) - since)
        return program

    def kill(self, program: Program, kind: str, choose: random.Random) -> float:
        """SIGKILL in mid-kernel, or held by hand with work queued; when."""
        if kind == "hold":
            self.session.steer.verb("hold", program.pid)
            time.sleep(0.1)  # what was not behind a gate runs out
        time.sleep(choose.uniform(0.0, 0.04))
        flying = int(self.lanes.spatial(program.pid)["in_flight"])
        self.idle += flying == 0
        when = time.monotonic()
        os.kill(program.pid, signal.SIGKILL)
        self.killed[kind] += 1
        self.session.mark("kill", pid=program.pid, kind=kind, in_flight=flying)
        self.lanes.drop(program)
        return when


def fallen(session: Session) -> list[str]:
    """The daemon's events about MPS servers that fell, with those that they took along."""
    said = [str(event.get("text", "")) for event in session.steer.client.events()]
    return [text for text in said if text.startswith(("the " + FELL[0], "the " + FELL[1])) and "taken along" in text]


def kills(session: Session, faults: Faults, first: Program | None) -> None:
    """All kills, as long as the budget has room."""
    choose = random.Random(session.options.seed)
    wanted = KILLS // 4 if session.options.quick else KILLS
    program, when = first, time.monotonic()
    for turn in range(wanted):
        if session.left < 15.0:
            session.say(f"the budget is used up after {turn} kills")
            break
        if program is None:
            program = faults.tenant(when)
            if program is None:
                continue
        when = faults.kill(program, ("kernel", "hold")[turn % 2], choose)
        program = faults.tenant(when)
        faults.look()
        if turn % 10 == 9:
            session.say(f"{turn + 1} kills, newcomers within {max(faults.started, default=0.0):.2f} s")
    if program is not None:
        faults.lanes.drop(program)


def report(session: Session, faults: Faults, lc: Program, calm: list[float], during: list[float]) -> None:
    """All rows."""
    for kind, count in faults.killed.items():
        session.row(f"tenants killed in mid-{kind}", count, "tenants", target=">= 50")
    session.row("of these without work in flight", faults.idle, "tenants", target="== 0")
    if calm and during:
        base = latency(calm)
        session.row("LC beside a tenant that is not killed: p99", base.p99, "us")
        session.row("LC beside a tenant that is not killed: max", base.max, "us")
        seen = latency(during)
        session.row("LC while tenants are killed: p50", seen.p50, "us", base.p50)
        session.row(f"LC while tenants are killed: p99 ({seen.count})", seen.p99, "us", base.p99, "<= 1.2 x baseline")
        session.row("LC while tenants are killed: max", seen.max, "us", base.max)
    session.row("LC was lost", int(not lc.alive), "times", target="== 0")
    session.row("newcomers that were refused", faults.refused, "tenants", target="== 0")
    if faults.started:
        session.row("kill to the newcomer's first kernels, p50", percentile(faults.started, 50), "s")
        session.row("kill to the newcomer's first kernels, longest", max(faults.started), "s", target="<= 5")
    restarts = max(0, len(faults.servers) - 1)
    named = fallen(session)
    session.row("MPS servers that had to be replaced", restarts, "servers")
    session.row("of these named in the daemon's events", len(named), "servers", float(restarts), ">= 1 x baseline")


def kill_server(session: Session, faults: Faults, lc: Program) -> None:
    """SIGKILL of the MPS server with two clients: who is named as taken along, and when a newcomer runs."""
    tenant = faults.tenant(None)
    living = [program.pid for program in (lc, tenant) if program is not None]
    before, refused = len(fallen(session)), faults.refused
    when = time.monotonic()
    os.kill(faults.servers[-1], signal.SIGKILL)
    session.mark("kill", pid=faults.servers[-1], kind="server")
    faults.started.clear()
    newcomer = faults.tenant(when)
    told = " ".join(fallen(session)[before:])
    named = sum(str(pid) in told for pid in living)
    session.say(f"MPS server killed: {told or 'nothing was said'}")
    session.mark("fell", text=told)
    session.row("MPS server killed: its clients named as taken along", named, "tenants", len(living), "== 1 x baseline")
    session.row("MPS server killed: newcomers refused", faults.refused - refused, "tenants", target="== 0")
    if faults.started:
        session.row("MPS server killed: to the newcomer's first kernels", faults.started[-1], "s", target="<= 5")
    for program in (newcomer, tenant, lc):
        if program is not None:
            faults.lanes.drop(program)


def run(session: Session) -> None:
    """The whole experiment."""
    periodic = session.calibrate(50, "periodic")[0]
    iterations, us = session.calibrate(687)
    with Lanes(session) as lanes:
        lanes.reserve(RESERVE)
        lc = lanes.start("LC", HIGH, kernels("periodic", "--period-ms", 2, "--iterations", periodic))
        lanes.ready(lc)
        faults = Faults(session, lanes, max(1, round(iterations * TENANT_US / us)))
        first = faults.tenant(None)
        faults.look()
        slot = session.slot("not killed", CALM, lc)
        calm = latencies(slot.windows[lc.name])
        begin = time.monotonic()
        try:
            kills(session, faults, first)
        finally:
            during = latencies(lc.windows(begin, time.monotonic())) if lc.alive else []
            report(session, faults, lc, calm, during)
        longest = max(faults.started, default=0.0)
        if faults.servers:
            kill_server(session, faults, lc)
    values = {"not killed": latency(calm).p99, "killed": latency(during).p99} if calm and during else {}
    figures = {"LC p99, us": values, "newcomer, s": {"longest": longest}}
    plot.bars(session.options.out / "mps-faults.png", figures, "")
