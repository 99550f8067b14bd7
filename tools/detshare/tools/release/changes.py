# SPDX-License-Identifier: Apache-2.0
"""CHANGELOG.md as data, and as Debian's changelog."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Final

from detshare.tools.release.errors import ReleaseError

__all__ = ["Entry", "debian", "read"]

_HEADING: Final = re.compile(r"^## (\S+) - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
_ITEM: Final = re.compile(r"^- (.*(?:\n  .*)*)", re.MULTILINE)
_MAINTAINER: Final = "DetShare maintainers <maintainers@detshare.invalid>"


@dataclass(frozen=True, slots=True)
class Entry:
    """A version, the day of its release, and what changed."""

    version: str
    day: date
    items: tuple[str, ...]

    @property
    def epoch(self) -> int:
        """The day's first second, UTC: what SOURCE_DATE_EPOCH is."""
        return int(datetime.combine(self.day, time(), UTC).timestamp())


def read(text: str) -> list[Entry]:
    """The entries of CHANGELOG.md, the newest first. ReleaseError."""
    parts = _HEADING.split(text)[1:]
    entries = []
    for version, day, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        items = tuple(" ".join(item.split()) for item in _ITEM.findall(body))
        try:
            entries.append(Entry(version, date.fromisoformat(day), items))
        except ValueError as error:
            raise ReleaseError("read CHANGELOG.md", f"## {version} - {day}: {error}", "correct that heading") from error
    if not entries:
        raise ReleaseError("read CHANGELOG.md", "it has no heading such as '## 0.1.0 - 2026-11-25'", "add one")
    return entries


def debian(entries: Sequence[Entry]) -> str:
    """debian/changelog of a native package."""
    return "\n".join(_block(each) for each in entries)


def _block(entry: Entry) -> str:
    lines = [f"detshare ({entry.version}) unstable; urgency=medium", ""]
    for item in entry.items:
        plain = item.replace("`", "")
        lines += textwrap.wrap(plain, 78, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False)
    when = datetime.combine(entry.day, time(), UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    return "\n".join([*lines, "", f" -- {_MAINTAINER}  {when}", ""])
