# SPDX-License-Identifier: Apache-2.0
"""Which line of a TOML file a key is on: the standard library's parser keeps no lines."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Lines"]

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'""")
_KEY: Final = re.compile(rf"""\s*((?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*)\s*=""")
_AT: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)\s*$")
_LONGEST: Final = 60
"""characters of a key that are shown"""

Key = tuple[str | int, ...]


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


class Lines:
    """Lines of one file. A key that hides in an inline table has the line of what it is part of."""

    def __init__(self, text: str) -> None:
        self._known: dict[Key, int] = {}
        self._last = 0
        table: Key = ()
        counts: dict[Key, int] = {}
        for number, line in enumerate(text.split("\n"), 1):
            self._last = number if line.strip() else self._last
            if header := _HEADER.match(line):
                table = _parts(header[2])
                if header[1] == "[[":
                    index = counts.get(table, -1) + 1
                    counts[table] = index
                    self._known.setdefault(table, number)
                    table = (*table, index)
                self._known.setdefault(table, number)
            elif found := _KEY.match(line):
                self._known.setdefault((*table, *_parts(found[1])), number)

    def of(self, key: Key) -> int:
        """The line of a key, or of the nearest thing around it; 0 where none is known."""
        for end in range(len(key), 0, -1):
            if line := self._known.get(key[:end]):
                return line
        starts = [line for known, line in self._known.items() if known[: len(key)] == key]
        return min(starts, default=0)

    @staticmethod
    def name(key: Key) -> str:
        """A key in words: pool.exclusive[0].sms."""
        made = ""
        for part in key:
            text = part if isinstance(part, int) or part.isprintable() else ascii(part)
            made += f"[{part}]" if isinstance(part, int) else f".{text}" if made else str(text)
        return made if len(made) <= _LONGEST else made[: _LONGEST - 3] + "..."

    def of_error(self, told: str) -> tuple[int, str]:
        """Line and reason of what the parser told."""
        at = _AT.search(told)
        reason = "a number is too long" if "int_max_str_digits" in told else " ".join(_AT.sub("", told).split())[:120]
        reason = "".join(each if each.isprintable() else "?" for each in reason)
        line = int(at[1]) if at and at[1] else self._last if at else 0
        return line, reason[:1].lower() + reason[1:]
