# SPDX-License-Identifier: Apache-2.0
"""park-incremental: how fast the GPU finds what changed, a park where a tenth did, and whether anything is missed."""

from __future__ import annotations

import random
from typing import Final

from detshare.tools.bench.parking.holder import GRAIN, MIB, Holder, Parked
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import Lanes
from detshare.tools.bench.stats import spread

__all__ = ["run"]

SIZE_MIB: Final = 8 << 10
QUICK_MIB: Final = 1 << 10
EPOCHS: Final = 1000
QUICK_EPOCHS: Final = 30
EPOCH_MIB: Final = 256
CHUNK_MIB: Final = 64


def bandwidth(session: Session, mib: int) -> float:
    """Of the GPU's memory, bytes a second: what copies within it read and write."""
    holder = Holder(session, mib, park=False, chunk_mib=CHUNK_MIB)
    try:
        line = holder.measure("bandwidth")
    finally:
        holder.end()
    return float(line["bytes_per_s"])


def changed(session: Session, mib: int, memory: float) -> None:
    """Parks of which nothing, a tenth and everything changed."""
    grains = mib * MIB // GRAIN
    holder = Holder(session, mib, chunk_mib=CHUNK_MIB)
    seed = session.options.seed
    try:
        session.row("the first park: copied of what was parked", _share(holder.park()), "", target="== 1")
        holder.resume()
        rates = []
        for share, name in ((0.0, "nothing"), (0.1, "10 %"), (1.0, "everything")):
            parks = []
            for _ in range(session.options.rounds):
                seed += 1
                holder.write(round(share * grains), seed)
                parks.append(holder.park())
                holder.resume()
            for each in parks:
                session.mark("park", share=share, park_s=each.park_s, hash_s=each.hash_s, copied=each.copied)
            target = "<= 0.05" if share == 0.1 and mib == SIZE_MIB else None
            session.spread_rows(f"{name} changed: park", spread([p.park_s for p in parks]), "s", target=target)
            session.row(f"{name} changed: copied of what was parked", max(map(_share, parks)), "")
            session.row(f"{name} changed: everything was copied for want of digests", sum(bool(p.whole) for p in parks),
                        "parks", target="== 0")  # fmt: skip
            rates += [mib * MIB / p.hash_s / 1e9 for p in parks if p.hash_s]
        if rates:
            what = "digests, of which the launch and the wait are part"
            session.row(what, max(rates), "GB/s", memory / 1e9, ">= 0.6 x baseline")
        session.row("memory that differs afterwards", float(not holder.same()), "", target="== 0")
    finally:
        holder.end()


def _share(park: Parked) -> float:
    return park.copied / park.bytes if park.bytes else 0.0


def epochs(session: Session, count: int, mib: int) -> None:
    """Random writes, a park, a way back, a comparison: over and over."""
    dice = random.Random(session.options.seed)
    holder = Holder(session, mib, chunk_mib=min(CHUNK_MIB, mib))
    differed, copied, whole = 0, 0, 0
    try:
        for number in range(count):
            holder.write(dice.randrange(8), dice.getrandbits(32))
            park = holder.park()
            copied += park.copied
            whole += bool(park.whole)
            if dice.random() < 0.5:
                holder.launch()
            else:
                holder.resume()
            differed += not holder.same()
            session.mark("epoch", number=number, copied=park.copied, park_s=park.park_s)
        session.row("epochs", count, "", target=f">= {EPOCHS}" if not session.options.quick else None)
        session.row("epochs after which the memory differed", differed, "", target="== 0")
        session.row("epochs: copied of what was parked", copied / (count * mib * MIB), "", target="< 0.5")
        session.row("epochs: everything was copied for want of digests", whole, "", target="== 0")
    finally:
        holder.end()


def run(session: Session) -> None:
    """The whole experiment."""
    quick = session.options.quick
    mib = QUICK_MIB if quick else SIZE_MIB
    with Lanes(session):
        changed(session, mib, bandwidth(session, mib))
        epochs(session, QUICK_EPOCHS if quick else EPOCHS, EPOCH_MIB)
