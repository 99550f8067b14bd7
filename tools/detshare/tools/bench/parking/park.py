# SPDX-License-Identifier: Apache-2.0
"""park: memory of 1 to 64 GiB off the GPU and back, beside plain copies, managed memory, the driver's checkpoint.

A size that the GPU or the arena has no room for is left out, and said.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

from detshare.tools.bench.parking.holder import LONGEST, Holder
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import Lanes
from detshare.tools.bench.stats import spread
from detshare.tools.bench.steer import SteerError

__all__ = ["run"]

SIZES_MIB: Final = (1 << 10, 8 << 10, 32 << 10, 64 << 10)
QUICK_MIB: Final = (1 << 10, 8 << 10)
JUDGED_MIB: Final = 8 << 10
"""from this size on the bus is to be the limit"""
CHUNK_MIB: Final = 64


def _words(mib: int) -> str:
    return f"{mib >> 10} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def plain(session: Session, mib: int) -> tuple[float, float] | None:
    """The baselines by hand: seconds away and back of plain copies. Rows for these and for managed memory."""
    holder = Holder(session, mib, park=False, chunk_mib=CHUNK_MIB)
    size, found = _words(mib), None
    try:
        for what, name in (("plain", "plain pinned copies"), ("managed", "managed memory, prefetched")):
            line = holder.measure(what)
            if "error" in line:
                session.say(f"{size}: {name} left out: {line['error']}")
                continue
            session.row(f"{size}: {name}, away", line["away_s"], "s")
            session.row(f"{size}: {name}, back", line["back_s"], "s")
            if what == "plain":
                found = (float(line["away_s"]), float(line["back_s"]))
    finally:
        holder.end()
    return found


def checkpoint(session: Session, mib: int) -> float | None:
    """The driver's checkpoint of the same program; seconds there and back, None where it cannot be had."""
    holder = Holder(session, mib, park=False, chunk_mib=CHUNK_MIB)
    try:
        command = [sys.executable, "-m", "detshare.tools.bench.parking.checkpoint", str(holder.program.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
        if done.returncode:
            session.say(f"{_words(mib)}: driver checkpoint left out: {done.stderr.strip()[-200:]}")
            return None
        seconds = json.loads(done.stdout)
        session.mark("checkpoint", mib=mib, **seconds)
        session.row(f"{_words(mib)}: driver checkpoint, away", seconds["lock"] + seconds["checkpoint"], "s")
        session.row(f"{_words(mib)}: driver checkpoint, back", seconds["restore"] + seconds["unlock"], "s")
        return float(sum(seconds.values()))
    finally:
        holder.end()


def parked(session: Session, mib: int, by_hand: tuple[float, float] | None) -> None:
    """Parks and ways back; in between every grain is changed, so that each park copies all of it."""
    size, judged = _words(mib), mib >= JUDGED_MIB
    holder = Holder(session, mib, chunk_mib=CHUNK_MIB)
    try:
        first = holder.park()
        session.row(f"{size}: the first park, which gets host memory", first.command_s, "s")
        wakes = [holder.launch()]
        away, back = [], []
        for number in range(session.options.rounds):
            holder.write(mib // 2, number)
            away.append(holder.park())
            back.append(holder.resume())
            holder.park()
            wakes.append(holder.launch())
        session.row(
            f"{size}: copied of what was parked, least", min(p.copied / p.bytes for p in away), "", target="== 1"
        )
        limit = "<= 0.2" if mib == 8 << 10 else None
        session.spread_rows(f"{size}: park", spread([p.park_s for p in away]), "s", target=limit)
        session.spread_rows(f"{size}: resume", spread(back), "s", target=limit)
        session.row(f"{size}: a launch that brings it back", max(wakes), "s")
        if by_hand is not None:
            rates = mib / 1024 / min(p.park_s for p in away), mib / 1024 / min(back)
            for name, rate, hand in zip(("park", "resume"), rates, by_hand, strict=True):
                target = ">= 0.9 x baseline" if judged else None
                session.row(f"{size}: {name}, rate", rate, "GiB/s", mib / 1024 / hand, target)
        session.row(f"{size}: memory that differs at the end", float(not holder.same()), "", target="== 0")
    finally:
        holder.end()


def run(session: Session) -> None:
    """The whole experiment."""
    with Lanes(session):
        for mib in QUICK_MIB if session.options.quick else SIZES_MIB:
            try:
                by_hand = plain(session, mib)
                checkpoint(session, mib)
                parked(session, mib, by_hand)
            except (ProgramError, SteerError) as error:
                if not session.rows:
                    raise
                session.say(f"{_words(mib)}: left out: {error}")
                session.row(f"{_words(mib)}: left out", 1, "")
