# SPDX-License-Identifier: Apache-2.0
"""The rate of this CPU's time stamp counter, which an emulated CPU shows unchanged.

A guest that measures it by itself, while the host is busy, gets it wrong by factors, and with it every time.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable

_SPAN_NS = 100_000_000  # of a measurement; its two ends are each known to about 1 us
_TRIES = 20
# rdtsc; shl rdx, 32; or rax, rdx; ret
_CODE = bytes.fromhex("0f3148c1e2204809d0c3")


def khz() -> int | None:
    """Ticks in a millisecond; None where there is no such counter or where code cannot be made at run time."""
    if platform.machine() != "x86_64":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    page.write(_CODE)
    anchor = ctypes.c_char.from_buffer(page)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(anchor))
    try:
        return _measure(read)
    finally:
        del read, anchor
        page.close()


def _measure(read: Callable[[], int]) -> int | None:
    ticks, begin = _pair(read)
    time.sleep(_SPAN_NS / 1e9)
    more, end = _pair(read)
    rate = round((more - ticks) * 1_000_000 / (end - begin))
    return rate if 100_000 < rate < 100_000_000 else None


def _pair(read: Callable[[], int]) -> tuple[int, int]:
    """The counter and the time in ns at one moment: of several tries the one that took the least time."""
    best = None
    for _ in range(_TRIES):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        ticks = read()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if best is None or after - before < best[0]:
            best = (after - before, ticks, (before + after) // 2)
    assert best is not None
    return best[1], best[2]
