# SPDX-License-Identifier: Apache-2.0
"""Values of a snapshot, whatever is in it: what is not as it should be is None, "" or nothing; and their text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

UNKNOWN = "-"

Json = Mapping[str, Any]


def clean(value: object) -> str:
    """One line of printable text. Programs choose their own argv: no control code may reach the terminal."""
    if not isinstance(value, str):
        return ""
    if value.isprintable():
        return value.strip()
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in value).strip()


def whole(value: object) -> int | None:
    """`value` if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    """`value` if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def items(value: object) -> list[Json]:
    """The objects of a JSON list; nothing for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def texts(value: object) -> list[str]:
    """The strings of a JSON list that are not empty."""
    return [clean(item) for item in value if clean(item)] if isinstance(value, list | tuple) else []


def short(value: float) -> str:
    """At most four characters where the value allows: 1, 1.2, 20, 200."""
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}"


def microseconds(value: object) -> str:
    """A time given in microseconds, in six characters at most: 50us, 2.05ms, 1s."""
    us = number(value)
    if us is None or us < 0:
        return UNKNOWN
    if us < 999.5:
        return f"{us:.0f}us"
    if us < 999_500:  # what would round to 1000
        return f"{us / 1e3:.3g}ms"
    return f"{us / 1e6:.{3 if us < 999.5e6 else 4}g}s" if us < 9_999e6 else ">9999s"


def memory(value: object) -> str:
    """Bytes in binary units: 512M, 1.2G."""
    size = number(value)
    if size is None or size < 0:
        return UNKNOWN
    for unit in ("B", "K", "M", "G"):
        if size < 999.5:
            return f"{short(size)}{unit}"
        size /= 1024
    return f"{short(size)}T"


def rate(value: float | None) -> str:
    """A second, in five characters at most: 0.3, 12, 1.2k, 45k."""
    if value is None or value < 0:
        return UNKNOWN
    for unit in ("", "k", "M"):
        if value < 999.5:
            return f"{short(value)}{unit}"
        value /= 1000
    return f"{short(value)}G"


def percent(value: float | None) -> str:
    """0..1 as percent."""
    return UNKNOWN if value is None else f"{value * 100:.0f}%"


def bar(value: float | None, width: int, ascii_only: bool = False) -> str:
    """A bar of `width` cells for 0..1, in eighths of a cell."""
    if value is None or width <= 0:
        return " " * max(width, 0)
    eighths = round(min(max(value, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    if ascii_only:
        return ("#" * full).ljust(width)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)
