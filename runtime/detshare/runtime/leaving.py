# SPDX-License-Identifier: Apache-2.0
"""Programs that ended in mid-work: their gates stay closed and their GPU memory stays, until their kernels ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Counters, Slot
from detshare.runtime.descriptors import Descriptors
from detshare.runtime.directory import Record

LEAST: Final = 2.0
MOST: Final = 30.0
"""seconds that are left to kernels; one that runs longer takes its neighbours along"""


def seconds_for(counters: Counters) -> float:
    """How long the last work of a program may take: twice the longest time from launch to finish that it ever had."""
    counts = zip(counters.array("hist_kernel"), counters.array("hist_graph"), strict=True)
    longest = max((bucket for bucket, both in enumerate(counts) if any(both)), default=0)
    return min(max(2 * 2.0 ** (longest + 1) / 1e9, LEAST), MOST)


@dataclass(slots=True)
class Remains:
    """What one program left."""

    record: Record
    slot: Slot
    descriptors: Descriptors
    due: float

    def release(self) -> None:
        """Let the driver free all of it, and others have its place. May take as long as the driver takes."""
        self.descriptors.close()
        self.slot.free()


class Leaving:
    """All that is left of programs that ended. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._remains: list[Remains] = []

    def add(self, record: Record, slot: Slot, descriptors: Descriptors, seconds: float) -> None:
        """Keep these for so long. What is queued behind a gate never runs; what runs ends."""
        slot.put("state", layout.SLOT_LEAVING)
        slot.put("active", 0)
        slot.hold(True)
        with self._lock:
            self._remains.append(Remains(record, slot, descriptors, time.monotonic() + seconds))

    def due(self, all_of_them: bool = False) -> Sequence[Remains]:
        """Take out those whose time is over; the caller releases them."""
        now = time.monotonic()
        with self._lock:
            over = [one for one in self._remains if all_of_them or one.due <= now]
            self._remains = [one for one in self._remains if one not in over]
        return over

    @property
    def left(self) -> float:
        """Seconds until the last is due; 0 where there is none."""
        with self._lock:
            return max((0.0, *(one.due - time.monotonic() for one in self._remains)))

    def __len__(self) -> int:
        with self._lock:
            return len(self._remains)
