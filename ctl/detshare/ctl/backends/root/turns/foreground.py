# SPDX-License-Identifier: Apache-2.0
"""What the foreground of one GPU leaves: which pattern it has, and whether its gaps are useful."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.backends.root.turns.pattern import FULL_SHARE, LONG_PIECE_NS, Sight, judge
from detshare.ctl.core.classes import BURST_US, STREAM_US, WINDOW_US
from detshare.ctl.core.gputime import Mode, Pattern

LOOK_S: Final = 0.25
"""the pattern is judged this often"""
SPAN_S: Final = 0.5
"""over what was seen in so long"""
AGREE: Final = 2
"""so many looks in a row must agree before a pattern changes"""
AGREE_LONG: Final = 8
"""the same to say that one who comes for long leaves no gaps: it may just be at it"""
SAMPLES: Final = 25
"""questions whether the foreground rests, until windows may end"""
IDLE_SHARE: Final = 0.15
"""windows end when the foreground was found at rest, for longer than a gap that serves nobody, in this share of them"""
SURE_SHARE: Final = 0.7
"""of SAMPLES: then it is another one than it was, and nothing more is asked"""
TRY_S: Final = 20.0
"""turns are tried all the same after so long: rests are asked for from outside, and useful gaps may be shorter"""
BLIND_S: Final = 5.0
"""where the driver does not say who rests, turns are tried again after so long"""
TRY_SPAN_S: Final = 0.1
"""who leaves no gaps in so long of a try ends it: a saturated one falls behind all the while"""
RETURN_S: Final = 3.0
"""who is saturated again within so long of the last time is asked twice as often, and tried half as often"""
MOST_SAMPLES: Final = 16 * SAMPLES


@dataclass(slots=True)
class Foreground:
    """The judgement on one GPU. Seconds of the caller's clock."""

    pattern: Pattern = Pattern.NONE
    why: str = "nothing was seen yet"
    gap_us: float = 0.0
    full: bool = False
    tight: bool = False
    """it had most of the time when it was seen last: what it leaves may be less than a floor"""
    changed_at: float = 0.0
    _next: Pattern = Pattern.NONE
    _agreed: int = 0
    _samples: list[bool] = field(default_factory=list)
    _needed: int = SAMPLES
    _left_at: float = float("-inf")
    _untaken_at: float = float("-inf")
    _trying: bool = False
    """turns are tried though nobody saw the foreground rest"""

    def span_s(self, now: float) -> float:
        """What it did in the last so many seconds is to be judged; 0: nothing yet."""
        passed = now - self.changed_at
        return SPAN_S if passed >= SPAN_S else passed if self._trying and passed >= TRY_SPAN_S else 0.0

    @property
    def look_s(self) -> float:
        """How often it is to be judged."""
        return TRY_SPAN_S / 2 if self._trying else LOOK_S

    @property
    def mode(self) -> Mode:
        """What the background gets, as far as this side decides."""
        return Mode.WINDOWS if self.full else Mode.TURNS

    def saw(self, sight: Sight, now: float, rests: bool = False, floor: float = 0.0, taken: bool = True) -> None:
        """Take a look at a time in which the background was let in, with a floor in windows.

        `rests`: the driver says that the foreground has nothing to run. Whoever ran last keeps the GPU in the log.
        `taken`: the background has work. Gaps that nobody takes cannot be seen, so nothing is said of them.
        """
        found, why = judge(sight, floor)
        self._trying = self._trying and sight.seconds < SPAN_S
        if not taken:
            self._untaken_at = now
        if found is Pattern.FULL and now - self._untaken_at < SPAN_S:
            return
        if found is Pattern.FULL and rests:
            found, why = Pattern.NONE, "the foreground was the last to run, and is at rest"
        if self._trying and (found is not Pattern.FULL or sight.piece_ns > LONG_PIECE_NS):
            return  # too short a time to say anything else
        self.tight = sight.share >= FULL_SHARE and found is not Pattern.NONE
        self._agreed = self._agreed + 1 if found is self._next else 1
        self._next = found
        if found is self.pattern:
            self.why, self.gap_us = why, sight.gap_ns / 1000
        elif self._agreed >= (AGREE_LONG if found is Pattern.FULL and sight.piece_ns > LONG_PIECE_NS else AGREE) or (
            self._trying
        ):
            self.pattern, self.why, self.gap_us, self.changed_at = found, why, sight.gap_ns / 1000, now
            if found is Pattern.FULL:
                self._needed = min(2 * self._needed, MOST_SAMPLES) if now - self._left_at < RETURN_S else SAMPLES
                self.full, self._samples, self._trying = True, [], False

    def asked(self, rests: bool | None, now: float) -> None:
        """While only windows are open: whether the foreground rested for a while. None: the driver does not say."""
        if not self.full:
            return
        if rests is None:
            if now - self.changed_at >= BLIND_S:
                self._leave("the driver does not say whether the foreground rests: turns are tried again", now)
            return
        self._samples.append(rests)
        newest = self._samples[-SAMPLES:]
        sure = len(newest) == SAMPLES and sum(newest) >= SURE_SHARE * SAMPLES
        if sure or len(self._samples) >= self._needed:
            samples = newest if sure else self._samples
            share = sum(samples) / len(samples)
            self.why = f"the foreground was at rest in {share:.0%} of {len(samples)} samples"
            self._samples = []
            if share >= IDLE_SHARE:
                self._leave(self.why, now)
        if self.full and now - self.changed_at >= TRY_S * self._needed / SAMPLES:
            self._leave("turns are tried again", now)
            self._trying = True

    def recast(self) -> None:
        """Other programs are the foreground from now on: what was learned of how often to ask is of no use."""
        self._needed, self._samples, self._left_at = SAMPLES, [], float("-inf")

    def gone(self, now: float) -> None:
        """Nobody of the foreground is left."""
        self.tight = False
        if self.pattern is not Pattern.NONE or self.full:
            self._leave("there is no foreground program", now)
            self.pattern = Pattern.NONE

    def _leave(self, why: str, now: float) -> None:
        self.full, self.pattern, self.why, self.changed_at = False, Pattern.BURSTS, why, now
        self._left_at, self._agreed, self._samples, self._trying = now, 0, [], False

    @property
    def slice_us(self) -> int:
        """Slice of whoever of the background runs."""
        if self.full:
            return WINDOW_US
        return STREAM_US if self.pattern is Pattern.STREAM else BURST_US
