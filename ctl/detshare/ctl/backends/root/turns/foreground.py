# SPDX-License-Identifier: Apache-2.0
"""What the foreground of one GPU leaves: which pattern it has, and whether its gaps are useful."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.backends.root.turns.pattern import FULL_SHARE, LONG_PIECE_NS, SHORT_PIECE_NS, Sight, judge
from detshare.ctl.core.classes import BURST_US, STREAM_US, WINDOW_US
from detshare.ctl.core.gputime import Mode, Pattern, Run

LOOK_S: Final = 0.25
"""the pattern is judged this often"""
SPAN_S: Final = 0.5
"""over what was seen in so long"""
AGREE: Final = 2
"""so many looks in a row must agree before a pattern changes"""
BRIEF_S: Final = 0.1
"""requests without gaps are seen in so long: whoever sends them falls behind all the while"""
BRIEF_LOOK_S: Final = 0.05
TRY_LOOK_S: Final = 0.02
"""the same while turns are tried"""
AGREE_LONG: Final = 8
"""the same to say that one who comes for long leaves no gaps: it may just be at it"""
SAMPLES: Final = 25
"""questions whether the foreground rests, until windows may end"""
IDLE_SHARE: Final = 0.15
"""windows end when the foreground was found at rest, for longer than a gap that serves nobody, in this share of them"""
RESTS: Final = 3
"""or in so many in a row"""
MOST_RESTS: Final = 16 * RESTS
"""twice as many each time that it left no gaps all the same: its launches are slower than the GPU"""
LINGERS_NS: Final = 3_000_000
"""who rests keeps the GPU in the log, for nobody else came"""
TRY_S: Final = 20.0
"""turns are tried all the same after so long: rests are asked for from outside, and useful gaps may be shorter"""
BLIND_S: Final = 5.0
"""where the driver does not say who rests, turns are tried again after so long"""
RETURN_S: Final = 3.0
"""who is saturated again within so long of the last time is asked twice as often, and tried half as often"""
MOST_SAMPLES: Final = 16 * SAMPLES
SOON_S: Final = 5.0
"""requests that always waited may have been late once: turns are tried again after so long, then twice, up to TRY_S"""
LEARNED_S: Final = 300.0
"""what was learned of how it waits for answers is learned again after so long, for a second"""
STREAM_S: Final = 60.0
"""a stream is seen beside short slices again after so long: what comes in its place may look like one beside 2 ms"""
HASTE_S: Final = 0.03
"""requests that always waited are seen in so long while turns are tried: some fifty of them come"""
CALM_PART: Final = 0.25
"""of its usual gap: a change of turns within it will not meet the next burst"""


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
    _looked_at: float = float("-inf")
    _dense: int = 0
    """brief looks in a row that saw no gaps"""
    _burst: tuple[int, int] = (0, 0)
    """on the GPU's clock: when its last burst ended, and when the one that goes on began; 0: none does"""
    _rests: int = RESTS
    _rested_at: float = float("-inf")
    """when it was found at rest so often, unless it was seen to leave much since"""
    _tried: bool = False
    """turns are on though nobody saw it rest: one look is enough"""
    _answered: bool = False
    """what it launches next waits for the answer to the last, or to one of the last few"""
    _learned_at: float = float("-inf")
    _short: Sight | None = None
    """how it came beside short slices, when it was called a stream"""
    _soon_s: float = SOON_S
    _hasty: bool = False
    """its requests are short, and waited for the background each time when turns were on last"""

    @property
    def look_s(self) -> float:
        """How often it is to be judged."""
        return TRY_LOOK_S if self._tried else BRIEF_LOOK_S

    def spans_s(self, now: float) -> Iterator[float]:
        """What it did in the last so many seconds is to be judged now."""
        if not self.full and now - self.changed_at >= SPAN_S and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            yield SPAN_S
        passed = now - self.changed_at  # what was just seen may have changed it
        if not self.full and passed >= BRIEF_S:
            yield BRIEF_S
        elif not self.full and self._tried and self._hasty and passed >= HASTE_S:
            yield HASTE_S

    def follow(self, closed: Sequence[Run], opened: Iterable[Run], background: Collection[int]) -> None:
        """What ran since the last time, oldest first, and what goes on."""
        end_ns = next((run.end_ns for run in reversed(closed) if run.pid not in background), self._burst[0])
        self._burst = end_ns, max((run.start_ns for run in opened if run.pid not in background), default=0)

    def calm(self, now_ns: int) -> bool:
        """Whether it has just had its burst, so that the next one is some time away; or comes anyhow."""
        if self.pattern is not Pattern.BURSTS or self.full:
            return True
        end_ns, began_ns = self._burst
        return not began_ns and now_ns - end_ns < CALM_PART * 1000 * self.gap_us

    def lingers(self, now_ns: int) -> bool:
        """Whether it has had the GPU for so long that it may be at rest."""
        return bool(self._burst[1]) and now_ns - self._burst[1] >= LINGERS_NS

    def suspects(self, sight: Sight, floor: float, slice_us: int) -> bool:
        """Whether it left no gaps then. In a brief time that is said of requests that always wait, and of some
        milliseconds."""
        if self._overdue(sight, slice_us):
            return True
        brief = sight.seconds < SPAN_S and not SHORT_PIECE_NS <= sight.piece_ns <= LONG_PIECE_NS
        return not brief and judge(sight, floor, slice_us, self._answered)[0] is Pattern.FULL

    def _overdue(self, sight: Sight, slice_us: int) -> bool:
        return sight.overdue(slice_us) or (self._answered and sight.waits(slice_us))

    def _judge(self, sight: Sight, floor: float, slice_us: int, now: float) -> tuple[Pattern, str]:
        self._answered &= now - self._learned_at < LEARNED_S
        found, why = judge(sight, floor, slice_us, self._answered)
        if self.pattern is Pattern.STREAM and slice_us >= STREAM_US and sight.streams(slice_us):
            keeps = sight.keeps_up(self._short) if sight.seconds >= SPAN_S and self._short is not None else None
            if keeps is not None:
                self._answered, self._learned_at = not keeps, now
            if keeps:
                return Pattern.STREAM, why
        elif found is not Pattern.STREAM:
            self._answered &= found is not Pattern.BURSTS
        if found is not Pattern.STREAM or not self._answered:
            return found, why
        found = Pattern.FULL if sight.waits(slice_us) else Pattern.BURSTS
        return found, f"{why}, and does less where it waits longer"

    @property
    def mode(self) -> Mode:
        """What the background gets, as far as this side decides."""
        return Mode.WINDOWS if self.full else Mode.TURNS

    def saw(
        self,
        sight: Sight,
        now: float,
        rests: bool = False,
        floor: float = 0.0,
        taken: bool = True,
        slice_us: int = BURST_US,
    ) -> None:
        """Take a look at a time in which the background was let in, with a slice, and with a floor in windows.

        `rests`: the driver says that the foreground has nothing to run. Whoever ran last keeps the GPU in the log.
        `taken`: the background has work. Gaps that nobody takes cannot be seen, so nothing is said of them.
        """
        found, why = self._judge(sight, floor, slice_us, now)
        overdue = found is Pattern.FULL and self._overdue(sight, slice_us)
        hasty = overdue and sight.piece_ns < SHORT_PIECE_NS
        if sight.share < FULL_SHARE and not hasty:
            self._rested_at = float("-inf")
        if not taken:
            self._untaken_at = now
        if found is Pattern.FULL and not overdue and now - self._untaken_at < sight.seconds:
            return
        if found is Pattern.FULL and rests:
            found, why = Pattern.NONE, "the foreground was the last to run, and is at rest"
        if sight.seconds < SPAN_S:
            self._dense = self._dense + 1 if found is Pattern.FULL and self.suspects(sight, floor, slice_us) else 0
            if self._dense >= (1 if self._tried else AGREE):
                self._hasty = hasty
                self._turn(found, why, sight, now)
            return
        if self.pattern is Pattern.STREAM and now - self.changed_at >= STREAM_S:
            found, why = Pattern.BURSTS, "a stream is seen beside short slices again"
        self._tried = False
        self._hasty, self._soon_s = hasty, SOON_S  # it was watched for so long, and did not wait
        self.tight = sight.share >= FULL_SHARE and found is not Pattern.NONE
        self._agreed = self._agreed + 1 if found is self._next else 1
        self._next = found
        if found is self.pattern:
            self.why, self.gap_us = why, sight.gap_ns / 1000
        elif self._agreed >= (AGREE_LONG if found is Pattern.FULL and sight.piece_ns > LONG_PIECE_NS else AGREE):
            self._turn(found, why, sight, now)

    def _turn(self, found: Pattern, why: str, sight: Sight, now: float) -> None:
        if found is Pattern.STREAM and self.slice_us < STREAM_US:
            self._short = sight
        self.pattern, self.why, self.gap_us, self.changed_at = found, why, sight.gap_ns / 1000, now
        if found is Pattern.FULL:
            self._needed = min(2 * self._needed, MOST_SAMPLES) if now - self._left_at < RETURN_S else SAMPLES
            most, at = (MOST_SAMPLES, self._left_at) if self._hasty else (MOST_RESTS, float("-inf"))
            self._rests = min(2 * self._rests, most) if now - max(at, self._rested_at) < RETURN_S else RESTS
            self.full, self.tight, self._samples, self._dense, self._tried = True, True, [], 0, False

    def asked(self, rests: bool | None, now: float, floor: float = 0.0) -> None:
        """While only windows are open: whether the foreground rested for a while. None: the driver does not say.

        `floor`: what the background has in windows. Between hasty requests the driver sees a rest whenever it is asked;
        but who had work behind the last window is in the log since.
        """
        if not self.full:
            return
        if self._hasty and rests and floor and self._burst[1]:
            rests = False
        if rests is None:
            if now - self.changed_at >= BLIND_S:
                self._leave("the driver does not say whether the foreground rests: turns are tried again", now)
            return
        self._samples.append(rests)
        if len(self._samples) >= self._rests and all(self._samples[-self._rests :]):
            before, self._rested_at = self._left_at, now
            self._leave(f"the foreground was at rest {self._rests} times in a row", now)
            self._left_at = before  # it does not come back at once, like one that rests now and then
            return
        if len(self._samples) >= self._needed:
            share = sum(self._samples) / self._needed
            self.why = f"the foreground was at rest in {share:.0%} of {self._needed} samples"
            self._samples = []
            if share >= IDLE_SHARE:
                self._leave(self.why, now)
        if self.full and now - self.changed_at >= (self._soon_s if self._hasty else TRY_S * self._needed / SAMPLES):
            self._soon_s = min(2 * self._soon_s, TRY_S)
            self._leave("turns are tried again", now)
            self._tried = True

    def recast(self, now: float) -> None:
        """Other programs are the foreground from `now` on: what was learned of how often to ask is of no use, nor is
        how the last ones came."""
        self._needed, self._rests, self._samples, self._left_at = SAMPLES, RESTS, [], float("-inf")
        self._answered = False
        if self.pattern is Pattern.STREAM:
            self._leave("the foreground is another one", now)

    def gone(self, now: float) -> None:
        """Nobody of the foreground is left."""
        self.tight = False
        if self.pattern is not Pattern.NONE or self.full:
            self._leave("there is no foreground program", now)
            self.pattern = Pattern.NONE

    def _leave(self, why: str, now: float) -> None:
        self.full, self.pattern, self.why, self.changed_at = False, Pattern.BURSTS, why, now
        self._left_at, self._agreed, self._samples, self._tried = now, 0, [], self._hasty

    @property
    def slice_us(self) -> int:
        """Slice of whoever of the background runs."""
        if self.full:
            return WINDOW_US
        return STREAM_US if self.pattern is Pattern.STREAM else BURST_US
