# SPDX-License-Identifier: Apache-2.0
"""Sizes of memory as people write them."""

from __future__ import annotations

import re
from typing import Final

from detshare.ctl.core.backend import BadRequest

MOST: Final = 1 << 63
"""bytes; the kernel module takes no greater limit"""
NO_LIMIT: Final = "max"
"""what removes a limit, as in cgroup v2"""

_SIZE = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,3}))?\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse(text: str) -> int | None:
    """Bytes of "4G", "512M", "1.5g", "4GiB" or a plain number; None for "max".

    K, M, G, T are powers of 1024. BadRequest for anything else, for 0 and above MOST.
    """
    text = text.strip()
    if text.lower() == NO_LIMIT:
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise BadRequest(f"{text[:40]!r} is no size: write 4G, 512M, a number of bytes, or {NO_LIMIT} for no limit")
    whole, part, unit = found[1], found[2] or "", found[3].upper()
    scale = _UNITS[unit]
    if part and scale == 1:
        raise BadRequest(f"{text} is no whole number of bytes")
    return check(int(whole) * scale + (int(part) * scale // 10 ** len(part) if part else 0))


def check(size: int) -> int:
    """`size` if it can be a limit. BadRequest otherwise."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or size > MOST:
        raise BadRequest(f"a limit of {str(size)[:24]} bytes is out of range: 1 to 2^63 bytes")
    if size == 0:
        raise BadRequest(f"a limit of 0 would refuse all memory; to have no limit say {NO_LIMIT}")
    return size


def text(size: int | None) -> str:
    """Bytes as people read them: exact where that is short, else to three digits. "?" where unknown."""
    if size is None:
        return "?"
    for unit, scale in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= scale:
            whole, rest = divmod(size, scale)
            return f"{whole}{unit}" if not rest else f"{size / scale:.3g}{unit}" if whole < 1000 else f"{whole}{unit}"
    return f"{size}B"
