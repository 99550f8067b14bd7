# SPDX-License-Identifier: Apache-2.0
"""park-deep: an idle program's memory and context off the GPU by `park --deep`, beside the driver's checkpoint alone.

First what outlives that checkpoint at all: each thing that the library counts on is made by a program of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.parking import nvml
from detshare.tools.bench.parking.holder import LONGEST, MIB, Holder
from detshare.tools.bench.parking.park import CHUNK_MIB, checkpoint
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import Lanes
from detshare.tools.bench.stats import spread
from detshare.tools.bench.steer import SteerError

__all__ = ["run"]

SIZE_MIB: Final = 8 << 10
QUICK_MIB: Final = 1 << 10
OBSERVER_MIB: Final = 2
THINGS: Final = {
    "reservation": "empty reservations of addresses",
    "pinned": "pinned host memory",
    "numa": "HOST_NUMA memory",
    "exportable": "memory that could be exported",
    "exported": "descriptors of exported memory",
    "shared": "memory that another process maps",
}
"""by what workloads/survivor.py calls them"""
NEEDED: Final = ("reservation", "pinned")
"""what a program that was parked by its library has"""


def survives(session: Session, kind: str) -> None:
    """Rows of one thing: whether the driver checkpoints who has it, and whether it is there afterwards."""
    what = THINGS[kind]
    program = session.start(what, [sys.executable, str(WORKLOADS / "survivor.py"), "--kind", kind], told=True)
    try:
        program.ready()
        command = [sys.executable, "-m", "detshare.tools.bench.parking.checkpoint", str(program.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
        wanted = "== 0" if kind in NEEDED else None
        session.row(f"{what}: the driver refuses to checkpoint", int(done.returncode != 0), "", target=wanted)
        if done.returncode:
            session.say(f"{what}: {done.stderr.strip()[-200:]}")
            return
        program.tell(do="check", number=0)
        line = program.wait_for("checked", LONGEST)
        if line["error"]:
            session.say(f"{what}: {line['error']}")
        session.row(f"{what}: lost by the driver's checkpoint", int(not line["ok"]), "", target=wanted)
    except ProgramError as error:
        session.say(f"{what}: left out: {error}")
    finally:
        session.drop(program)


class Seen:
    """The GPU as others see it: a small program asks how much of it is free."""

    def __init__(self, session: Session) -> None:
        self._holder = Holder(session, OBSERVER_MIB, park=False)
        self._free = self._holder.left()

    def left_mib(self) -> float:
        """MiB that are not free and were at the beginning."""
        return (self._free - self._holder.left()) / MIB

    def end(self) -> None:
        """It is not needed any more."""
        self._holder.end()


def deep(session: Session, mib: int, alone: float | None) -> None:
    """Parks and ways back, all grains changed in between; what is left on the GPU. `alone`: seconds of the driver."""
    seen = Seen(session)
    holder = Holder(session, mib, chunk_mib=CHUNK_MIB)
    pid, size = holder.program.pid, f"{mib >> 10} GiB" if mib >= 1024 else f"{mib} MiB"
    try:
        listed = nvml.used_by(pid)
        whole = seen.left_mib()
        holder.park()  # gets host memory
        fast = seen.left_mib()
        holder.resume()
        away, back, wakes, left, by_nvml = [], [], [], [], []
        for number in range(session.options.rounds):
            holder.write(mib // 2, number)
            away.append(holder.park_deep())
            left.append(seen.left_mib())
            by_nvml.append((nvml.used_by(pid) or 0) / MIB)
            began = time.monotonic()
            holder.resume()
            back.append(time.monotonic() - began)
            holder.park_deep()
            wakes.append(holder.launch())
        session.row(f"{size}: on the GPU before", whole, "MiB")
        session.row(f"{size}: on the GPU after a park by the library alone", fast, "MiB")
        session.row(f"{size}: on the GPU after a deep park, as others see it", max(left), "MiB", target="<= 1")
        if listed:
            session.row(f"{size}: NVML: it had", listed / MIB, "MiB")
            session.row(f"{size}: NVML: it has after a deep park", max(by_nvml), "MiB", target="== 0")
        else:
            session.say("NVML lists no process here: what is left is what others see")
        session.spread_rows(f"{size}: deep park", spread(away), "s")
        session.spread_rows(f"{size}: resume", spread(back), "s")
        session.row(f"{size}: a launch that brings it back", max(wakes), "s")
        both = min(away) + min(back)
        if alone is not None:
            session.row(f"{size}: deep park and resume", both, "s", alone, "<= 0.5 x baseline")
        else:
            session.row(f"{size}: deep park and resume", both, "s")
        session.row(f"{size}: memory that differs at the end", float(not holder.same()), "", target="== 0")
    finally:
        holder.end()
        seen.end()


def run(session: Session) -> None:
    """The whole experiment."""
    mib = QUICK_MIB if session.options.quick else SIZE_MIB
    with Lanes(session):
        for kind in THINGS:
            survives(session, kind)
        alone = checkpoint(session, mib)
        try:
            deep(session, mib, alone)
        except SteerError as error:
            # what outlives the checkpoint was found out, and says why
            session.say(f"deep park: {error}")
            session.row("deep parks that did not come about", 1, "", target="== 0")
