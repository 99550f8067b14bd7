# SPDX-License-Identifier: Apache-2.0
"""Whether a foreground rests for longer than a gap that serves nobody: it is asked several times in a row.

No two distances between questions are equal, or they would meet each request of a foreground with a period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

REST_S: Final = 0.0015
"""from the first question to the last at least: one takes a millisecond, and sees a rest that begins in it"""
AGAIN_S: Final = 0.0003
"""from one to the next, and up to three times as much"""
_GOLDEN: Final = 0.6180339887


def _spread() -> Iterator[float]:
    """Numbers from 0 to 1, evenly distributed from the first on."""
    return (n * _GOLDEN % 1 for n in count())


class Rests:
    """Questions to the foregrounds of GPUs, one after another. Seconds of the caller's clock."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next: dict[str, float] = {}
        """GPU -> when its foreground is to be asked"""
        self._since: dict[str, float] = {}
        """GPU -> when it was found at rest, while it is asked again"""
        self._answers: dict[str, bool | None] = {}
        """GPU -> what nobody has taken yet"""
        self._random = _spread()

    @property
    def gpus(self) -> tuple[str, ...]:
        """Whose foregrounds are being asked."""
        return tuple(self._next)

    def wait(self, now: float) -> float:
        """Seconds until somebody is to be asked."""
        return max(0.0, min(self._next.values(), default=float("inf")) - now)

    def look(self, gpu: str, now: float, ask: Callable[[], bool | None]) -> tuple[bool | None, ...]:
        """The answer, if there is one by now: it rested all the time, it did not, or the driver does not say."""
        if gpu not in self._answers:
            self._ask(gpu, now, ask)
        return (self._answers.pop(gpu),) if gpu in self._answers else ()

    def goes_on(self, now: float, ask: Callable[[str], bool | None]) -> bool:
        """Ask those whom it is time to ask, of `gpus`; whether there is an answer for `look` to take."""
        for gpu in self.gpus:
            if gpu not in self._answers:
                self._ask(gpu, now, lambda gpu=gpu: ask(gpu))  # type: ignore[misc]
        return bool(self._answers)

    def _ask(self, gpu: str, now: float, ask: Callable[[], bool | None]) -> None:
        if now < self._next.get(gpu, now):
            return
        since = self._since.setdefault(gpu, now)
        answer = ask()
        if answer is True and now - since < REST_S:
            self._next[gpu] = now + AGAIN_S * (1 + 2 * next(self._random))
            return
        del self._since[gpu]
        self._next[gpu] = since + self._every_s * (0.6 + 0.8 * next(self._random))
        self._answers[gpu] = answer

    def drop(self, gpu: str) -> None:
        """It is not asked any more for now."""
        self._since.pop(gpu, None)
        self._next.pop(gpu, None)
        self._answers.pop(gpu, None)


def uneven(every_s: float, last: float) -> float:
    """About `every_s` seconds after a question at `last`, never in step with what works and rests by a clock."""
    return every_s * (0.6 + 0.8 * (last * 1618.03 % 1.0))
