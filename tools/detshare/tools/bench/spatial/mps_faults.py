# SPDX-License-Identifier: Apache-2.0
"""mps-faults: 100 tenants killed with SIGKILL beside a running LC, one at a time: in mid-kernel, in mid-hold, in turn.

LC is a kernel of 50 us every 2 ms on the first 32 SMs; a tenant's kernels of 20 ms fill the others back to back, so
that it is in mid-kernel whenever it is killed. The next tenant is the newcomer, started right after the kill. An LC
that is lost is kept with its last words, and another one takes its place. At the end the MPS server itself is killed:
the daemon has to name whom it took along, and a newcomer has to start. The same kills under MPS alone come first; and
tenants that end by themselves, in the same rhythm: a program that starts disturbs LC, whatever ended before it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detshare.runtime.mps import Mps, MpsError
from detshare.tools.bench import plot
from detshare.tools.bench.catalog import kernels
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import MPS, How, Lanes
from detshare.tools.bench.stats import latencies, latency, percentile
from detshare.tools.bench.steer import SteerError

KILLS = 100
RESERVE = 32
TENANT_US = 20_000
BARE = {"1 ms": 1000, "20 ms": TENANT_US}
"""kernels of the tenants that are killed under MPS alone"""
BARE_KILLS = 5
CALM = 2.5
"""seconds of LC beside a tenant that is not killed"""
START = 20.0
"""seconds after which a newcomer counts as refused"""
ENDS = 12
"""tenants that end by themselves"""
AFTER = 0.2
"""seconds after a kill in which no newcomer uses the GPU yet"""
BUSY = 5.0
"""seconds within which a tenant has work in flight"""
NOTICE = 0.4
"""seconds after which LC has noticed that it is lost: measured, 0.15 to 0.19"""
HIGH, LOW = How("spatial", klass="high"), How("spatial", klass="low")
FELL = ("MPS server", "MPS control daemon")
"""how the daemon's events about a fall begin"""
KEPT = 4000
"""bytes of each log that are kept where LC is lost"""


def evidence(lc: Program, logs: Path) -> dict[str, Any]:
    """What is left of an LC that was lost: its end, what MPS and the kernel said at that moment."""
    texts: dict[str, Any] = {"code": lc.code, "words": lc.last_words()}
    for path in (logs / "control.log", logs / "server.log"):
        try:
            texts[path.name] = path.read_bytes()[-KEPT:].decode(errors="replace")
        except OSError as error:
            texts[path.name] = str(error)
    try:
        said = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", timeout=10, check=False)
        texts["kernel"] = [line for line in said.stdout.splitlines() if "NVRM" in line][-4:]
    except (OSError, subprocess.SubprocessError) as error:
        texts["kernel"] = [str(error)]
    return texts


@dataclass
class Faults:
    """One run of the experiment."""

    session: Session
    lanes: Lanes
    lc_argv: list[str]
    iterations: int
    started: list[float] = field(default_factory=list)
    """seconds from a kill to the newcomer's first finished kernels"""
    refused: int = 0
    killed: dict[str, int] = field(default_factory=lambda: {"kernel": 0, "hold": 0})
    idle: int = 0
    """killed without work in flight: such a kill proves nothing"""
    lost: int = 0
    """LCs that ended by themselves"""
    servers: list[int] = field(default_factory=list)
    """PIDs of the MPS servers that were seen, in the order of their coming"""
    during: list[float] = field(default_factory=list)
    """latencies of LC since `count_from_now`"""
    after: list[float] = field(default_factory=list)
    """those of them that began at most AFTER seconds after a kill"""
    kills: list[float] = field(default_factory=list)
    """when"""
    lc: Program | None = None
    _since: float = 0.0

    def __post_init__(self) -> None:
        self._mps = Mps(self.session.steer.run_dir / "mps")

    def start_lc(self) -> Program:
        """An LC that is ready; its latencies count from now. ProgramError, SteerError."""
        self.lc = lc = self.lanes.start("LC", HIGH, self.lc_argv)
        self.lanes.ready(lc)
        self.count_from_now()
        return lc

    def count_from_now(self) -> None:
        self._since = time.monotonic()

    def gather(self) -> None:
        """Take in what LC has measured up to now."""
        lines = self.lc.lines("window", self._since, "t0") if self.lc is not None else []
        for line in lines:
            took = line.get("latency_us", [])
            self.during += took
            # one request each period: the n-th began after n parts of the window
            step = (line["t1"] - line["t0"]) / max(1, len(took))
            for place, one in enumerate(took):
                began = line["t0"] + place * step
                self.after += [one] if any(0.0 <= began - when <= AFTER for when in self.kills[-100:]) else []
        self.count_from_now()

    def look(self) -> None:
        """Note a server that was not seen before, and an LC that is lost; another LC takes its place."""
        if self._mps.adopt():
            try:
                self.servers += [pid for pid in self._mps.server_list() if pid not in self.servers]
            except MpsError as problem:
                self.session.say(str(problem))
        if self.lc is None or self.lc.alive:
            return
        self.lost += 1
        found = evidence(self.lc, self._mps.log)
        self.session.say(f"LC was lost: {found['code']}, {found['words']}; {found['kernel'][-1:]}")
        self.session.mark("lost", pid=self.lc.pid, kills=sum(self.killed.values()), **found)
        self.gather()
        self.lanes.drop(self.lc)
        try:
            self.start_lc()
        except (ProgramError, SteerError) as problem:
            self.session.say(f"no LC any more: {problem}")
            self.lc = None

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

    def flying(self, program: Program) -> int:
        """Launches in flight; waits until there are some."""
        until = time.monotonic() + BUSY
        while not (found := int(self.lanes.spatial(program.pid)["in_flight"])) and time.monotonic() < until:
            time.sleep(0.002)
        return found

    def kill(self, program: Program, kind: str, choose: random.Random) -> float:
        """SIGKILL in mid-kernel, or held by hand with work queued; when."""
        self.flying(program)
        if kind == "hold":
            self.session.steer.verb("hold", program.pid)
            time.sleep(0.1)  # what was not behind a gate runs out
        time.sleep(choose.uniform(0.0, 0.04))
        flying = self.flying(program)
        self.idle += flying == 0
        when = time.monotonic()
        os.kill(program.pid, signal.SIGKILL)
        self.killed[kind] += 1
        self.kills.append(when)
        self.session.mark("kill", pid=program.pid, kind=kind, in_flight=flying)
        self.lanes.drop(program)
        return when


def bare(session: Session, lanes: Lanes, lc_argv: list[str], iterations: dict[str, int]) -> None:
    """The same under MPS alone: no runtime in the programs, nobody who keeps anything of the dead."""
    for name, count in iterations.items():
        killed = lost = 0
        for _ in range(BARE_KILLS):
            lc = lanes.start("MPS LC", MPS, lc_argv)
            argv = kernels("saturate", "--iterations", count, "--depth", 2, "--warm", 1)
            tenant = lanes.start("MPS tenant", MPS, argv)
            try:
                lc.ready(START)
                tenant.ready(START)
                time.sleep(0.1)
                os.kill(tenant.pid, signal.SIGKILL)
                killed += 1
                session.mark("kill", pid=tenant.pid, kind=f"MPS alone, {name}")
                time.sleep(NOTICE)
                if not lc.alive:
                    lost += 1
                    logs = Path(lanes.command(MPS, [])[1]["CUDA_MPS_LOG_DIRECTORY"])
                    session.mark("lost", pid=lc.pid, kills=killed, **evidence(lc, logs))
            except ProgramError as problem:
                session.say(f"MPS alone, {name}: {problem}")
            finally:
                lanes.drop(lc, tenant)
            if lost == 2:
                break
        session.row(f"MPS alone: tenants killed in a kernel of {name}", killed, "tenants")
        session.row(f"MPS alone: LC was lost by that ({name})", lost, "times")


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
            session.say(f"{turn + 1} kills, LC lost {faults.lost} times, newcomers within {max(faults.started):.2f} s")
    if program is not None:
        faults.lanes.drop(program)
    faults.look()


def ends(session: Session, faults: Faults, first: Program | None) -> tuple[Program | None, list[float]]:
    """Tenants that end by themselves, one after the other; the last, which lives, and LC's latencies."""
    faults.count_from_now()
    program = first
    for _ in range(ENDS // 3 if session.options.quick else ENDS):
        if program is not None:
            faults.flying(program)
            time.sleep(0.03)
            faults.lanes.drop(program)
        program = faults.tenant(None)
        faults.look()
    faults.gather()
    seen, faults.during = faults.during, []
    faults.after.clear()
    return program, seen


def report(session: Session, faults: Faults, calm: list[float], ended: list[float]) -> None:
    """All rows."""
    for kind, count in faults.killed.items():
        session.row(f"tenants killed in mid-{kind}", count, "tenants", target=">= 50")
    session.row("of these without work in flight", faults.idle, "tenants", target="== 0")
    if calm and ended and faults.during:
        base, orderly, seen = latency(calm), latency(ended), latency(faults.during)
        session.row("LC beside a tenant that stays: p99", base.p99, "us")
        session.row("LC beside a tenant that stays: max", base.max, "us")
        session.row(f"LC while tenants end by themselves and others start: p99 ({orderly.count})", orderly.p99, "us")
        session.row("LC while tenants end by themselves and others start: max", orderly.max, "us")
        session.row("LC while tenants are killed and others start: p50", seen.p50, "us", orderly.p50)
        what = f"LC while tenants are killed and others start: p99 ({seen.count})"
        session.row(what, seen.p99, "us", orderly.p99, "<= 1.2 x baseline")
        session.row("the same against LC beside a tenant that stays", seen.p99, "us", base.p99)
        session.row("LC while tenants are killed and others start: max", seen.max, "us", orderly.max)
        if faults.after:
            near = latency(faults.after)
            what = f"LC in the {AFTER:g} s after a kill, against a tenant that stays: p99 ({near.count})"
            session.row(what, near.p99, "us", base.p99, "<= 1.2 x baseline")
    session.row("LC was lost", faults.lost, "times", target="== 0")
    session.row("newcomers that were refused", faults.refused, "tenants", target="== 0")
    if faults.started:
        session.row("kill to the newcomer's first kernels, p50", percentile(faults.started, 50), "s")
        session.row("kill to the newcomer's first kernels, longest", max(faults.started), "s", target="<= 5")
    restarts = max(0, len(faults.servers) - 1)
    named = fallen(session)
    session.row("MPS servers that had to be replaced", restarts, "servers")
    session.row("of these named in the daemon's events", len(named), "servers", float(restarts), ">= 1 x baseline")


def kill_server(session: Session, faults: Faults) -> None:
    """SIGKILL of the MPS server with two clients: who is named as taken along, and when a newcomer runs."""
    tenant = faults.tenant(None)
    programs = [program for program in (faults.lc, tenant) if program is not None and program.alive]
    before, refused = len(fallen(session)), faults.refused
    when = time.monotonic()
    os.kill(faults.servers[-1], signal.SIGKILL)
    session.mark("kill", pid=faults.servers[-1], kind="server")
    faults.started.clear()
    newcomer = faults.tenant(when)
    told = " ".join(fallen(session)[before:])
    named = sum(str(program.pid) in told for program in programs)
    session.say(f"MPS server killed: {told or 'nothing was said'}")
    session.mark("fell", text=told)
    session.row("MPS server killed: clients that it had", len(programs), "tenants", target="== 2")
    session.row(
        "MPS server killed: its clients named as taken along", named, "tenants", len(programs), "== 1 x baseline"
    )
    session.row("MPS server killed: newcomers refused", faults.refused - refused, "tenants", target="== 0")
    if faults.started:
        session.row("MPS server killed: to the newcomer's first kernels", faults.started[-1], "s", target="<= 5")
    for program in (newcomer, *programs):
        if program is not None:
            faults.lanes.drop(program)


def run(session: Session) -> None:
    """The whole experiment."""
    periodic = session.calibrate(50, "periodic")[0]
    iterations, us = session.calibrate(687)
    lc_argv = kernels("periodic", "--period-ms", 2, "--iterations", periodic)
    with Lanes(session) as lanes:
        bare(session, lanes, lc_argv, {name: max(1, round(iterations * long / us)) for name, long in BARE.items()})
        lanes.reserve(RESERVE)
        faults = Faults(session, lanes, lc_argv, max(1, round(iterations * TENANT_US / us)))
        lc = faults.start_lc()
        first = faults.tenant(None)
        faults.look()
        slot = session.slot("not killed", CALM, lc)
        calm = latencies(slot.windows[lc.name])
        first, ended = ends(session, faults, first)
        try:
            kills(session, faults, first)
        finally:
            faults.gather()
            report(session, faults, calm, ended)
        longest = max(faults.started, default=0.0)
        if faults.servers:
            kill_server(session, faults)
    series = {"nobody ends": calm, "some end": ended, "some are killed": faults.during}
    values = {name: latency(one).p99 for name, one in series.items() if one}
    figures = {"LC p99, us": values, "newcomer, s": {"longest": longest}}
    plot.bars(session.options.out / "mps-faults.png", figures, "")
