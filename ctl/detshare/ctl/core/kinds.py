# SPDX-License-Identifier: Apache-2.0
"""Kinds of arguments: what JSON may hold for them, and what a person may type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from detshare.ctl.core import classes, sizes
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.snapshot import Level as RunlistLevel


def shown(value: object) -> str:
    """Any value in a few characters."""
    try:
        text = f"{value:g}" if isinstance(value, float) else ascii(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nesting without end
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    check: Callable[[str], str] | None = None

    def read(self, verb: str, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise BadRequest(f"{verb} needs {name}, a string; it got {shown(value)}")
        return value if self.check is None else self.check(value)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number."""

    allowed: range
    label: str
    """what an error calls it"""
    zero: bool = False
    """0 may be given, too"""

    def read(self, verb: str, name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadRequest(f"{verb} needs {name}, a whole number; it got {shown(value)}")
        if not -(2**63) <= value < 2**64:
            raise BadRequest(f"{verb}: {name} is far out of range: {shown(value)}")
        return value if self.zero and value == 0 else classes.check_range(self.label, value, self.allowed)

    def typed(self, text: str) -> object:
        if not (text.isdecimal() and text.isascii() and int(text[:18]) in self.allowed):
            first, last = self.allowed[0], self.allowed[-1]
            raise BadRequest(f"{self.label} is a whole number from {first} to {last}, not {text[:20]!r}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Sms(Whole):
    """A number of SMs, or a word for one. None for what is as by default."""

    words: Mapping[str, int | None] = field(default_factory=dict)

    def typed(self, text: str) -> object:
        if text in self.words:
            return self.words[text]
        if not (text.isdecimal() and text.isascii() and int(text[:9]) in self.allowed):
            raise BadRequest(f"{text[:20]!r} is no number of SMs: give 16, or {' or '.join(self.words)}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Rate(Whole):
    """Microseconds in each second; typed as such or as a share. None for off."""

    def typed(self, text: str) -> object:
        if text == "off":
            return None
        number, scale = (text[:-1], 10_000.0) if text.endswith("%") else (text, 1.0)
        try:
            value = float(number) * scale
        except ValueError:
            value = float("nan")
        if not 1 <= value <= self.allowed[-1]:
            raise BadRequest(f"{text[:20]!r} is no rate: give a share such as 25%, microseconds in each second, or off")
        return round(value)


@dataclass(frozen=True, slots=True)
class Permille(Whole):
    """Thousandths; typed in percent."""

    def typed(self, text: str) -> object:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not 0 <= value <= 100:
            raise BadRequest(f"{text[:20]!r} is no percentage from 0 to 100")
        made = round(10 * value)
        if value and not made:
            raise BadRequest(f"{text[:20]!r} is less than 0.1 %, the smallest step; 0 is none")
        return made

    def say(self, value: object) -> str:
        """As it was typed."""
        return f"{value / 10:g}" if isinstance(value, int) else shown(value)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, in JSON and typed; the backend gets it times `scale`."""

    most: float
    unit: str
    scale: float = 1.0

    def read(self, verb: str, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= self.most:
            raise BadRequest(f"{name} is {shown(value)}; it is a {self.unit}, 0 to {self.most:g}")
        return float(value * self.scale)


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the run list."""

    names = tuple(level.name.lower() for level in RunlistLevel)

    def read(self, verb: str, name: str, value: object) -> RunlistLevel:
        if not isinstance(value, str) or value not in self.names:
            raise BadRequest(f"{name} is {shown(value)}; it is one of {', '.join(self.names)}")
        return RunlistLevel[value.upper()]


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, or a text such as 8G; max for None."""

    def read(self, verb: str, name: str, value: object) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return sizes.check(value)
        return sizes.parse(Text().read(verb, name, value))

    def typed(self, text: str) -> object:
        sizes.parse(text)
        return text


@dataclass(frozen=True, slots=True)
class Flag:
    """Given or not: any value that is not false, 0 or empty gives it."""

    def read(self, verb: str, name: str, value: object) -> bool:
        return bool(value)
