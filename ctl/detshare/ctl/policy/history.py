# SPDX-License-Identifier: Apache-2.0
"""What the looks before the last one have to be remembered for: rates, ages, GPU time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.core.snapshot import Program
from detshare.ctl.core.work import Times, times

__all__ = ["History"]

WINDOW_S: Final = 1.0
"""over which rates are formed"""
SETTLE_US: Final = 1e6
"""after which what is said of a program that was held is of what it does since"""


@dataclass(slots=True)
class History:
    """One program."""

    last: Program | None = None
    """as the last look had it"""
    version: int = -1
    """of what people and policies decided, when its views were made"""
    calm: bool = False
    """nothing of its views changes while the program does not"""
    seen_at: float = 0.0
    """seconds: the last look, calm or not"""

    samples: deque[tuple[float, int, int, float]] = field(default_factory=deque)
    """(when, launches, graph launches, milliseconds held)"""
    waits: deque[tuple[float, tuple[int, ...]]] = field(default_factory=deque)
    """(when, histogram of delays so far)"""
    progress: tuple[int, ...] = ()
    """what moves with each launch; empty while it has no work"""
    stood_since: float = 0.0
    """when that moved last"""
    used_us: float = 0.0
    used_at: float | None = None
    """when it was added to last"""
    held_since: float | None = None
    """when its gate was shut; None: it is open"""
    held_us: float = 0.0
    """of the time since `used_at`, before `held_since`"""
    opened_at: float | None = None
    """when its gate was opened last"""
    told_at: float = -SETTLE_US
    """when it was told last that its gate moves"""
    used_open: float = 0.0
    """its share when it was open all the time"""

    def age(self, now_us: float, progress: tuple[int, ...]) -> float:
        """For how long nothing moved: what is in flight is that old at least. 0 where nothing tells."""
        if progress != self.progress:
            self.progress, self.stood_since = progress, now_us
        return now_us - self.stood_since if progress else 0.0

    def gate(self, now_us: float, *, open_: bool) -> None:
        """Its gate is open from now on, or shut."""
        if self.used_at is None or open_ == (self.held_since is None):
            return
        self.told_at = now_us
        if self.held_since is None:
            self.held_since = now_us
        else:
            self.held_us += now_us - max(self.held_since, self.used_at)
            self.held_since, self.opened_at = None, now_us

    def used(self, now_us: float, usage: Callable[[float], float], *, open_: bool = True) -> float:
        """GPU time so far: the share of the latest interval, added up, where nobody counts better.

        `usage`: seconds -> its share of the newest ones. `open_`: as a look has it, which may be older than what was
        told; whoever else moved the gate did so at the look before, for all that is known. Who is held uses nothing;
        what is said of it for a second after it was let go is partly of the time before, and counts if it is more than
        its share was.
        """
        if self.used_at is not None:
            if open_ != (self.held_since is None) and now_us - self.told_at >= SETTLE_US:
                self.gate(self.used_at, open_=open_)
                self.told_at = -SETTLE_US
            held = self.held_us + (0.0 if self.held_since is None else now_us - max(self.held_since, self.used_at))
            free = max(0.0, now_us - self.used_at - held)
            share = usage(free / 1e6) if free else 0.0
            settles = self.opened_at is not None and now_us - self.opened_at < SETTLE_US
            if held or settles:
                share = max(share, self.used_open) if free else 0.0
            elif free:
                self.used_open = share
            self.used_us += share * free
        self.used_at, self.held_us = now_us, 0.0
        return round(self.used_us, -3)

    def rest(self, now_us: float) -> None:
        """Nothing of the time since the last look counts, as when a look finds it as calm as the one before."""
        if self.used_at is not None:
            self.used_at, self.held_us = now_us, 0.0

    def rates(self, now: float, launches: int, graphs: int, held_ms: float) -> tuple[float, float, float]:
        """Launches and graphs a second, part of the time held."""
        if self.calm and self.samples:  # what was not noted stood still until the last look
            self.samples[-1] = (self.seen_at, *self.samples[-1][1:])
        self.samples.append((now, launches, graphs, held_ms))
        while len(self.samples) > 2 and now - self.samples[1][0] >= WINDOW_S:
            self.samples.popleft()
        begun, first, first_graphs, first_held = self.samples[0]
        seconds = now - begun
        if seconds <= 0:
            return 0.0, 0.0, 0.0
        held = min(1.0, max(0.0, (held_ms - first_held) / 1000 / seconds))
        # two digits: what wobbles beyond them is no news
        return _round((launches - first) / seconds), _round((graphs - first_graphs) / seconds), round(held, 2)

    def delays(self, now: float, counted: tuple[int, ...]) -> Times | None:
        """Of the launches of the last second; None where none was timed."""
        if not counted:
            return None
        if self.calm and self.waits:
            self.waits[-1] = (self.seen_at, self.waits[-1][1])
        self.waits.append((now, counted))
        while len(self.waits) > 2 and now - self.waits[1][0] >= WINDOW_S:
            self.waits.popleft()
        # a program may write there what it likes, smaller numbers too
        return times([max(0, last - first) for first, last in zip(self.waits[0][1], counted, strict=True)])


def _round(rate: float) -> float:
    return float(f"{max(0.0, rate):.2g}")
