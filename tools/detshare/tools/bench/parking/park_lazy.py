# SPDX-License-Identifier: Apache-2.0
"""park-lazy: the first kernel of a program that was parked, and when all of its memory is home, beside a plain copy.

`--mib` is how much it holds; rounds are parks. The kernel reads and writes one word; the program goes on launching it
until all is home.
"""

from __future__ import annotations

import time
from typing import Final

from detshare.tools.bench.parking.holder import Holder
from detshare.tools.bench.parking.park import CHUNK_MIB, plain
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import Lanes
from detshare.tools.bench.stats import spread

__all__ = ["run"]

SIZE_MIB: Final = 32 << 10
QUICK_MIB: Final = 4 << 10
WRITTEN: Final = 64
"""grains that change between two parks"""
LEAST_S: Final = 30.0


def run(session: Session) -> None:
    """The whole experiment."""
    options = session.options
    mib = options.mib or (QUICK_MIB if options.quick else SIZE_MIB)
    size = f"{mib / 1024:g} GiB"
    session.steer.config = session.folder / "detshare.toml"
    session.steer.config.write_text("[park]\nlazy = true\n", encoding="utf-8")
    with Lanes(session):
        by_hand = plain(session, mib)
        holder = Holder(session, mib, chunk_mib=CHUNK_MIB)
        try:
            session.row(f"{size}: the first park, which gets host memory", holder.park().command_s, "s")
            holder.launch()
            holder.all_home()
            parks: list[float] = []
            firsts: list[float] = []
            longest: list[float] = []
            homes: list[float] = []
            for number in range(options.rounds):
                if session.left < LEAST_S and firsts:
                    break
                holder.write(WRITTEN, number)
                parks.append(holder.park().park_s)
                firsts.append(holder.launch())
                most, until = 0.0, time.monotonic() + LEAST_S
                while holder.state() != "home" and time.monotonic() < until:
                    most = max(most, holder.launch())
                longest.append(most)
                homes.append(holder.all_home())
            session.spread_rows(f"{size}: park", spread(parks), "s")
            session.spread_rows(f"{size}: the first kernel", spread(firsts), "s", target="<= 0.02")
            session.row(f"{size}: the longest kernel meanwhile", max(longest), "s")
            if by_hand is not None:
                session.row(f"{size}: all home", max(homes), "s", by_hand[1], "<= 1.5 x baseline")
            else:
                session.row(f"{size}: all home", max(homes), "s")
            session.row(f"{size}: memory that differs at the end", float(not holder.same()), "", target="== 0")
        finally:
            holder.end()
