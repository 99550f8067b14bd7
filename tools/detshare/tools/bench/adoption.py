# SPDX-License-Identifier: Apache-2.0
"""adoption: every kind of CUDA program is found, steered and put back; births and deaths under load are all seen."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from detshare.tools.bench.catalog import decode, kernels, train, zoo
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.steer import SteerError, compute

ZOO: dict[str, list[str]] = {
    "PyTorch": decode(10, "--layers", 4),
    "JAX": zoo("jax_app"),
    "CuPy": zoo("cupy_app"),
    "Triton": zoo("triton_app"),
    "static cudart, C": zoo("static_cudart"),
    "two contexts, two threads, driver API": zoo("two_contexts"),
    "forked and spawned workers": zoo("forked"),
    "another pid and mount namespace": zoo("pidns"),
}
CONTEXTS = {"two contexts, two threads, driver API": 2}
TRIAL_US = 777
"""a slice that no program has by itself"""
LONG_US = 10_000
"""no program has so long a slice by itself; class high gives a longer one"""

Key = tuple[str, int, int]


def slices(program: dict[str, Any]) -> dict[Key, int]:
    """Slice of each TSG, copy TSGs too, by what names it."""
    return {(tsg["gpu"], tsg["client"], tsg["handle"]): int(tsg["slice_us"]) for tsg in program["tsgs"]}


def settled(session: Session, pid: int, contexts: int) -> dict[str, Any]:
    """The adopted program once two looks in a row show the same TSGs: a framework still makes some after `ready`."""
    before = session.steer.adopted(pid, contexts)
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        time.sleep(0.6)
        now = session.steer.adopted(pid, contexts)
        if slices(now).keys() == slices(before).keys():
            return now
        before = now
    return before


def numbered(name: str, program: Program) -> list[tuple[str, int]]:
    """What rows call each PID of a program, and the PID."""
    pids = program.programs
    return [(name if len(pids) == 1 else f"{name} ({n} of {len(pids)})", pid) for n, pid in enumerate(pids, 1)]


def one(session: Session, name: str, program: Program) -> None:
    """Adoption, a change that is seen, and a release that puts every slice back, for each PID of one program."""
    ready = program.ready()
    for what, pid in numbered(name, program):
        contexts = CONTEXTS.get(name, 1)
        try:
            first = session.steer.adopted(pid, contexts)
        except SteerError as error:
            session.mark("not adopted", what=what, reason=str(error))
            session.row(f"{what}: compute TSGs seen", 0, "TSGs", contexts, ">= 1 x baseline")
            continue
        before = settled(session, pid, contexts)
        session.mark("adopted", what=what, program=before, ready=ready)
        session.row(f"{what}: compute TSGs seen", len(compute(before)), "TSGs", contexts, ">= 1 x baseline")
        session.row(f"{what}: time to adopt", float(first["adopted_ms"] or 0.0), "ms", target="<= 100")
        session.steer.ctl("set-slice", str(pid), str(TRIAL_US))
        changed = session.steer.program(pid)
        taken = sum(tsg["slice_us"] == TRIAL_US for tsg in compute(changed)) if changed else 0
        session.row(
            f"{what}: compute TSGs with the slice that was set", taken, "TSGs", len(compute(before)), ">= 1 x baseline"
        )
        session.steer.ctl("release", str(pid))
        after = session.steer.program(pid)
        kept = slices(after) if after else {}
        wrong = sum(kept.get(key) != value for key, value in slices(before).items())
        session.row(
            f"{what}: TSGs whose slice differs after release", wrong, f"of {len(slices(before))}", target="== 0"
        )


def newborn(session: Session) -> None:
    """The same programs, started at one moment while the daemon looks on. Their time to adopt has no target.

    A program that makes a context holds the driver's lock again and again, and questions wait for it: a look that
    falls into that time measures the making of contexts, up to nine of them here. `late` makes one at a time.
    """
    programs = {name: session.start(name, argv) for name, argv in ZOO.items()}
    for program in programs.values():
        program.ready()
    missing = 0
    for name, program in programs.items():
        for what, pid in numbered(name, program):
            try:
                found = session.steer.adopted(pid, CONTEXTS.get(name, 1))
            except SteerError as error:
                session.mark("not adopted", what=what, reason=str(error))
                missing += 1
                continue
            session.mark("adopted newborn", what=what, program=found)
            session.row(f"started under the daemon: {what}: time to adopt", float(found["adopted_ms"] or 0.0), "ms")
    session.row("started under the daemon: programs that were not adopted", missing, "programs", target="== 0")
    session.finish(*programs.values())


def late(session: Session) -> None:
    """A context 3 s after the start, a second one on request, and a desired state made before the first context."""
    waited: dict[int, list[float]] = {1: [], 2: []}
    applied: list[int] = []
    adopted_ms: list[float] = []
    for turn in range(3 if session.options.quick else 10):
        program = session.start(f"late {turn}", zoo("late", "--delay", 1 if turn else 3))
        program.ready()
        if turn:
            session.steer.ctl("set-priority", str(program.pid), "high")
        for count in (1, 2):
            if count == 2:
                program.signal(signal.SIGUSR1)
            line = program.wait_for("context", 30.0, since=count, key="n")
            seen = session.steer.adopted(program.pid, count)
            fields = {"seen": seen["seen"], "adopted_ms": seen["adopted_ms"]}
            session.mark("late", turn=turn, context=count, made=line["t"], **fields)
            if count == 1:
                adopted_ms.append(float(seen["adopted_ms"] or 0.0))
            waited[count].append(max(0.0, seen["seen"] - line["t"]))
            if turn and count == 1:
                time.sleep(0.5)  # it is applied in the look after the one that finds the context, at the latest
                now = session.steer.program(program.pid)
                applied.append(sum(tsg["slice_us"] >= LONG_US for tsg in compute(now)) if now else 0)
        session.finish(program)
    for count, values in waited.items():
        what = f"context {count} of a late program: seen after, longest of {len(values)}"
        session.row(what, max(values), "s", target="<= 1")
    session.row(f"late programs: time to adopt, longest of {len(adopted_ms)}", max(adopted_ms), "ms", target="<= 100")
    what = "late programs whose class was not applied to their first context"
    session.row(what, applied.count(0), f"of {len(applied)}", target="== 0")


@dataclass
class Watcher:
    """Asks for ``ps`` over and over from a thread and remembers when each PID was shown with a compute TSG."""

    session: Session
    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    adopted_ms: dict[int, float] = field(default_factory=dict)
    looks: int = 0
    failures: list[str] = field(default_factory=list)
    over: bool = False

    def run(self) -> None:
        """Until ``over``; the time of a look is when its answer was asked for."""
        while not self.over:
            asked = time.monotonic()
            try:
                programs = self.session.steer.ps()["programs"]
            except SteerError as error:
                self.failures.append(str(error))
                continue
            self.looks += 1
            for program in programs:
                if compute(program):
                    self.first.setdefault(program["pid"], time.monotonic())
                    self.last[program["pid"]] = asked
                    self.adopted_ms[program["pid"]] = float(program["adopted_ms"] or 0.0)
            time.sleep(0.03)


def churn(session: Session) -> None:
    """Births and deaths beside a saturated GPU: each PID seen while it lives, gone from ``ps`` 1 s after its death."""
    births = 25 if session.options.quick else 100
    iterations, _us = session.calibrate(687)
    load = session.start_all(
        {"load: training": train("resnet"), "load: kernels": kernels("saturate", "--iterations", iterations)}
    )
    for program in load:
        session.steer.adopted(program.pid)
    watcher = Watcher(session)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    try:
        words = ("--births", births, "--at-once", 6, "--shortest", 1.0, "--longest", 2.0)
        program = session.start("churn", zoo("churn", *words))
        summary = program.wait_for("summary", 270.0)
        time.sleep(1.5)
    finally:
        watcher.over = True
        thread.join()
    born = {ln["pid"]: ln["t"] for ln in program.lines("birth")}
    died = {ln["pid"]: ln["t"] for ln in program.lines("death")}
    known = {one.pid for one in load}
    seen = {pid for pid in born if watcher.first.get(pid, float("inf")) <= died.get(pid, float("inf")) + 1.0}
    strangers = set(watcher.last) - set(born) - known
    stale = {pid for pid in born if watcher.last.get(pid, 0.0) > died.get(pid, float("inf")) + 1.0}
    took = [max(0.0, watcher.first[pid] - born[pid]) for pid in seen]
    session.mark("churn", born=born, died=died, first=watcher.first, last=watcher.last, looks=watcher.looks)
    session.mark("churn adoption", adopted_ms=watcher.adopted_ms)
    session.row("births under load", len(born), "programs", births, ">= 1 x baseline")
    session.row("births under load that failed to start", int(summary["failed"]), "programs", target="== 0")
    session.row("deaths under load", len(died), "programs", births, ">= 1 x baseline")
    session.row("births under load that ps missed", len(born) - len(seen), "programs", target="== 0")
    session.row("programs in ps that nobody started", len(strangers), "programs", target="== 0")
    session.row("dead programs still in ps 1 s later", len(stale), "programs", target="== 0")
    session.row("looks that failed under load", len(watcher.failures), f"of {watcher.looks}", target="== 0")
    if took:
        slow = [watcher.adopted_ms[pid] for pid in seen]
        session.row("births under load: time to adopt, median", percentile(slow, 50), "ms")
        session.row("births under load: time to adopt, longest", max(slow), "ms")
        session.row("birth to seen in ps, median", percentile(took, 50), "s")
        session.row("birth to seen in ps, longest", max(took), "s", target="<= 1")
    session.finish(program, *load)


def run(session: Session) -> None:
    """The whole experiment."""
    programs = {name: session.start(name, argv) for name, argv in ZOO.items()}
    for program in programs.values():
        program.ready()
    time.sleep(1.0)
    session.manage()  # only now: the programs are running, as those are that a user names
    for name, program in programs.items():
        one(session, name, program)
    session.finish(*programs.values())
    newborn(session)
    late(session)
    churn(session)
