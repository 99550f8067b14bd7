# SPDX-License-Identifier: Apache-2.0
"""Work that is done again and again, for a small part of the time however long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["rarely"]

PART: Final = 20
"""work that took a second rests for so many"""


def rarely(work: Callable[[], object], least_s: float = 1.0) -> Callable[[], bool]:
    """`work` as a function that does it at most once in `least_s`, and for a twentieth of the time; whether it did."""
    rests = 0.0

    def now_and_then() -> bool:
        nonlocal rests
        begun = time.monotonic()
        if begun < rests:
            return False
        work()
        rests = max(begun + least_s, time.monotonic() + PART * (time.monotonic() - begun))
        return True

    return now_and_then
