# SPDX-License-Identifier: Apache-2.0
"""Values of the last minutes, one a second, kept while somebody looks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Final

from detshare.ctl.core.gputime import SLOT_S, GpuTime

__all__ = ["GAP", "LEVELS", "SECONDS", "Series", "Shares", "level"]

SECONDS: Final = 300
"""length of a history"""
BRIEF: Final = 5
"""seconds: what is missed for so long is taken to be as it is now"""
LEVELS: Final = 50
"""a share is told in so many steps: a character each"""
GAP: Final = 255
"""nobody looked then"""
_FIRST: Final = 35
"""code of the character for 0; from there to 85 none has to be escaped in JSON"""
_EACH: Final = round(1 / SLOT_S)


def level(share: float) -> int:
    """A share, 0..1, in steps."""
    return round(min(max(share, 0.0), 1.0) * LEVELS)


class Series:
    """Numbers; NaN where none is known."""

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, value: float | None, seconds: int) -> None:
        """The value of a second, `seconds` after the last one; 0: the same second again."""
        values = self._values
        if seconds <= 0 and values:
            del values[-1:]
        made = math.nan if value is None else value
        between = made if seconds <= BRIEF else math.nan
        values.extend([between] * min(max(seconds - 1, 0) if values else 0, SECONDS))
        values.append(made)
        del values[:-SECONDS]

    def to_json(self, newest: int = SECONDS) -> list[float | None]:
        """So many of the newest, oldest first; None where none is known."""
        return [None if math.isnan(each) else round(each, 6) for each in self._values[-newest:]]


class Shares:
    """A program's share of one GPU, in steps. What was missed is filled from the seconds that the meter remembers."""

    def __init__(self) -> None:
        self._levels = bytearray()

    def add(self, share: float, time: GpuTime | None, seconds: int) -> int:
        """The share of a second, `seconds` after the last one (0: the same again); the step that was added.

        `time`: what is known besides; it counts more than `share`, which is of some seconds.
        """
        levels, slots = self._levels, time.history if time is not None else ()
        if seconds <= 0 and levels:
            del levels[-1:]
        fresh = not levels
        missed = min(max(seconds - 1, 0), SECONDS) if not fresh else SECONDS
        known = [_second(slots, ago) for ago in range(1, min(missed, len(slots) // _EACH - 1) + 1)][::-1]
        step = _second(slots, 0) if len(slots) >= _EACH else level(share)
        if not fresh:
            levels.extend([step if seconds <= BRIEF else GAP] * (missed - len(known)))
        levels.extend(known)
        levels.append(step)
        del levels[:-SECONDS]
        return levels[-1]

    @property
    def text(self) -> str:
        """A character each second, oldest first; a space where nobody looked."""
        return "".join(" " if each == GAP else chr(_FIRST + each) for each in self._levels)

    def to_json(self) -> list[float | None]:
        """The same as numbers, 0..1."""
        return [None if each == GAP else each / LEVELS for each in self._levels]


def _second(slots: Sequence[float], ago: int) -> int:
    end = len(slots) - ago * _EACH
    return level(sum(slots[end - _EACH : end]) / _EACH)
