# SPDX-License-Identifier: Apache-2.0
"""How much the background of a GPU gets, so that the slowest of a hundred requests takes no longer than was stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LEAST", "PAUSED", "Governor", "Reading"]

LEAST: Final = 20
"""requests: fewer say nothing of a p99"""
PAUSED: Final = -1
"""below a floor of 0: class idle does not run at all"""
SETTLE_US: Final = 1_500_000.0
"""from a change to the first request that shows all of it"""
SHY_US: Final = 30_000_000.0
"""how long a level at which the goal was missed is not tried again; twice as long with each time that it is missed"""
MOST_DOUBLINGS: Final = 6
FAR: Final = 0.5
"""of the goal: a p99 above it grows with the background's windows, so what they do with twice as much is not known"""


@dataclass(frozen=True, slots=True)
class Reading:
    """A p99 beside its goal. Times in microseconds."""

    name: str
    goal_us: float
    p99_us: float
    requests: int
    window_us: float

    @property
    def ratio(self) -> float:
        """Above 1 the goal is missed."""
        return self.p99_us / self.goal_us


class Governor:
    """Of one GPU. `level` is the floor of class low in percent, or PAUSED.

    One step for each window of requests that began after the last step: half as much where the goal is missed; where
    the p99 was below `margin` of it in two windows a quarter more (at least 1), or twice as much as long as it is below
    FAR and was never missed; between the two it stays. A level
    at which the goal was missed is not reached again for SHY_US, longer with each miss, until it was held once: so it
    comes to rest below it.
    """

    def __init__(self, level: int, most: int, margin: float) -> None:
        self.level, self._most, self._margin = level, most, margin
        self._since_us: float | None = None
        """when the level was set; None: it stood before"""
        self._good = 0
        """windows in a row with room for more"""
        self._judged_us = -1e18
        self._missed: dict[int, tuple[int, float]] = {}
        """level -> how often the goal was missed there, and when last"""
        self._was_missed = False
        self.exhausted = False
        """the goal is missed and nothing is left to take"""

    def judge(self, now_us: float, readings: list[Reading], had: int = 0) -> str:
        """Why the level is another one from now on; empty where it stays. `had`: percent that the background had of
        late, with what it gets beside its floor: a floor below that changes nothing, so a step up begins there.
        """
        ripe = [each for each in readings if each.requests >= LEAST and self._is_ripe(each, now_us)]
        if not ripe:
            return ""
        worst = max(ripe, key=lambda each: each.ratio)
        if worst.ratio > 1:
            return self._lower(now_us, worst)
        if any(each not in ripe for each in readings) or now_us - self._judged_us < worst.window_us:
            return ""
        self._judged_us, self.exhausted = now_us, False
        if worst.ratio >= self._margin:
            self._good = 0
            return ""
        self._good += 1
        return self._raise(now_us, worst, had) if self._good >= 2 else ""

    def _is_ripe(self, reading: Reading, now_us: float) -> bool:
        return self._since_us is None or now_us - self._since_us >= reading.window_us + SETTLE_US

    def _lower(self, now_us: float, reading: Reading) -> str:
        self._good, self._was_missed = 0, True
        self.exhausted = self.level == PAUSED
        if self.exhausted:
            return ""
        above = [self._missed.pop(level)[0] for level in [*self._missed] if level >= self.level]
        self._missed[self.level] = 1 + max(above, default=0), now_us
        return self._set(now_us, PAUSED if self.level == 0 else self.level // 2, "above", reading)

    def _raise(self, now_us: float, reading: Reading, had: int) -> str:
        for level in [*self._missed]:
            if level <= self.level:
                del self._missed[level]  # it was held
        begin = max(self.level, had)
        step = max(1, begin // 4 if self._was_missed or reading.ratio > FAR else begin)
        level = 0 if self.level == PAUSED else begin + step
        for missed, (often, when) in self._missed.items():
            barred = now_us - when < SHY_US * 2 ** min(often - 1, MOST_DOUBLINGS)
            level = min(level, missed - barred)  # up to it where it may be tried again, and no further
        level = min(level, self._most)
        return self._set(now_us, level, "well below", reading) if level > self.level else ""

    def _set(self, now_us: float, level: int, side: str, reading: Reading) -> str:
        before, self.level = self.level, level
        self._since_us, self._good = now_us, 0
        told = f"p99 of {reading.name} is {_ms(reading.p99_us)}, {side} its {_ms(reading.goal_us)}"
        return f"{told} ({reading.requests} requests): {_named(before)} -> {_named(level)}"


def _named(level: int) -> str:
    return "idle paused" if level == PAUSED else f"floor {level} %"


def _ms(us: float) -> str:
    return f"{us / 1000:.3g} ms"
