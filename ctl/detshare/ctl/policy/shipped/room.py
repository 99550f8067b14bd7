# SPDX-License-Identifier: Apache-2.0
"""Who makes room when GPU memory is full: nobody, somebody, or each in its turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from detshare.ctl.core import sizes
from detshare.ctl.policy.shipped.asked import rank
from detshare.ctl.policy.types import Action, Park, Policy, Snapshot, TenantView

__all__ = ["WHEN_FULL", "MakesRoom", "Room", "turn_us"]

WHEN_FULL: Final = ("refuse", "park", "turns")
BUS: Final = 50e3
"""bytes a microsecond each way, where nobody was copied yet (measured on an H200: 50.6 and 55.3 GB/s)"""
SHORTEST_US: Final = 1_000_000.0
"""of a turn: a look sees a program wait after up to a quarter of a second"""
IDLE_US: Final = 250_000.0
"""without a launch: whoever waits that long is taken for idle and has no turn to end"""
LONGER: Final = 4.0
"""times as many turns of one a class higher are waited for"""
SETTLE_US: Final = 1_000_000.0
"""a park takes so long to be asked for, done and taken: nobody else is asked meanwhile"""


def turn_us(holder: TenantView, waiting: TenantView, copy_percent: float) -> float:
    """How long who has the memory keeps it while the other waits: so long that the copies of the change, out and in,
    are at most `copy_percent` of it."""
    copies = max(holder.copy_us, (holder.parkable_bytes + waiting.wants_bytes) / BUS)
    return max(SHORTEST_US, copies * 100 / copy_percent)


class Room:
    """One for each policy object.

    refuse: nobody is parked. park: the lowest class first, of that the longest idle; nobody who works, unless its class
    is lower than that of who waits. turns: idle ones likewise, and who had its turn (`turn_us`); who waits for a higher
    class waits LONGER turns for each class between them, and then it is its turn. Of several who wait the longest goes
    first, a wait counting LONGER times in each higher class: so nobody waits for ever. One at a time on each GPU.
    """

    def __init__(self, when_full: str, copy_percent: float) -> None:
        self._how, self._copy_percent = when_full, copy_percent
        self._last: dict[str, float] = {}
        """GPU -> when somebody was asked last"""
        self._asked: dict[str, float] = {}
        """tenant -> when it was asked last: who refuses is not the first again"""
        self._since: dict[tuple[str, str], float] = {}
        """(GPU, tenant) -> since when it waits"""

    def make(self, now: Snapshot) -> Iterator[Park]:
        """Somebody who is to leave for somebody who waits."""
        waiting = [each for each in now.tenants if each.wants_bytes]
        mine = {(now.gpu, each.name) for each in waiting}
        self._since = {key: since for key, since in self._since.items() if key[0] != now.gpu or key in mine}
        for key in mine:
            self._since.setdefault(key, now.now_us)
        recently = now.now_us - self._last.get(now.gpu, -1e18) < SETTLE_US
        if self._how == "refuse" or recently or any(each.residence == "leaving" for each in now.tenants):
            return
        able = [each for each in now.tenants if each.residence == "home" and each.parkable_bytes]
        able = [each for each in able if "Park" not in each.by_hand]
        able = [each for each in able if each.gate_open or not each.active]  # what is paused in mid-work ends nothing
        for each in sorted(waiting, key=lambda view: self._turn_order(now, view)):
            chosen = [(other, why) for other in able if other is not each and (why := self._why(now, other, each))]
            if chosen:
                first, why = min(chosen, key=lambda pair: self._order(pair[0], now.now_us))
                self._last[now.gpu] = self._asked[first.name] = now.now_us
                size = sizes.text(each.wants_bytes)
                yield Park(first.name, each.name, f"{each.name} waits for {size} of GPU memory; {first.name} {why}")
                return

    def _waited(self, now: Snapshot, each: TenantView) -> float:
        return now.now_us - self._since[now.gpu, each.name]

    def _turn_order(self, now: Snapshot, each: TenantView) -> tuple[float, int, str]:
        return -(self._waited(now, each) + 1) * LONGER ** rank(each), -rank(each), each.name

    def _order(self, each: TenantView, now_us: float) -> tuple[object, ...]:
        refused = now_us - self._asked.get(each.name, -1e18) < 10 * SETTLE_US
        return refused, rank(each), each.deadline_us is not None, -each.idle_us, -each.home_us, each.name

    def _why(self, now: Snapshot, each: TenantView, waiting: TenantView) -> str:
        """Why it may be asked; empty where it may not."""
        if not each.active and each.idle_us >= IDLE_US:
            return f"launched nothing for {each.idle_us / 1e6:.1f} s"
        higher = rank(each) - rank(waiting)
        if self._how == "park":
            return "has a lower class" if higher < 0 else ""
        turn = turn_us(each, waiting, self._copy_percent)
        due = higher <= 0 or self._waited(now, waiting) >= turn * LONGER**higher
        return f"had its turn of {turn / 1e6:.1f} s" if each.home_us >= turn and due else ""


class MakesRoom(Policy):
    """A policy that answers memory pressure by Room."""

    @dataclass(frozen=True)
    class Params:
        """copy_percent: of a turn, what the copies of the change take at most."""

        when_full: str = WHEN_FULL[0]
        copy_percent: float = 10.0

        def __post_init__(self) -> None:
            if self.when_full not in WHEN_FULL:
                raise ValueError(f"when_full is {self.when_full!r}; it is one of {', '.join(WHEN_FULL)}")
            if not 0.1 <= self.copy_percent <= 100:
                raise ValueError(f"copy_percent is {self.copy_percent:g}; it must be 0.1 to 100")

    def __init__(self, params: Any = None) -> None:
        super().__init__(params)
        self._room = Room(self.params.when_full, self.params.copy_percent)

    def on_memory_pressure(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Somebody makes room."""
        return self._room.make(now)
