# SPDX-License-Identifier: Apache-2.0
"""Where a program's GPU memory is to be, as the daemon keeps it for each of its tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from detshare.runtime import board_layout as layout

STATES: Final = {
    layout.PARK_HOME: "home",
    layout.PARK_LEAVING: "leaving",
    layout.PARK_AWAY: "parked",
    layout.PARK_COMING: "coming",
    layout.PARK_WAITING: "waiting",
    layout.PARK_LENT: "returning",
}
"""counters.park_state in words"""
REASONS: Final = {
    layout.PARK_OFF: "it was not started with detshare run --park",
    layout.PARK_NOTHING: "it has no memory that can leave the GPU",
    layout.PARK_ARENA: "there is no host memory for it",
    layout.PARK_BUSY: "its work did not end within 5 s (a paused program with work queued ends none: resume it first)",
    layout.PARK_CAPTURE: "one of its streams is being captured into a graph: try again",
    layout.PARK_CONTEXT: "it has contexts besides the primary one, or green contexts of its own, which nobody can stop",
    layout.PARK_DRIVER: "the driver refused to copy its memory: see the program's standard error",
    layout.PARK_ENDING: "its context is ending",
}
"""counters.park_reason in words; a program may write there what it likes"""
WHOLE: Final = {
    layout.WHOLE_OFF: "park.incremental is off",
    layout.WHOLE_KERNEL: "the kernel that finds what changed cannot be had",
    layout.WHOLE_LAUNCH: "the kernel that finds what changed does not run",
    layout.WHOLE_WRONG: "the kernel that finds what changed computes something else than the reference",
}
"""counters.whole in words: why the last park copied everything"""


@dataclass(slots=True)
class Residence:
    """One tenant's. Times on the boards' clock."""

    asked: int = 0
    """policy.park: the latest request"""
    parks: int = 0
    """how many parks were told"""
    away: bool = False
    """what was told last is that its memory left"""
    waits: bool = False
    """and that it waits for room"""
    since_ns: int = 0
    """since then its memory is on the GPU, or the last try to park it was refused"""
    home_ns: int = 0
    """since then its memory is on the GPU; 0: it is not, or was not looked at yet"""
    room_for: int = 0
    """the PID that it was parked for last; 0: for nobody"""
    asks: bool = False
    """what was told last is that an allocation of it waits for room"""
    stay_until: int = 0
    """until then it does not come back by itself: somebody else has the room"""
    moves_until: int = 0
    """the same, and it parks for a plain way back: it is moved to another GPU"""
    arena: int = 0
    """bytes of host memory that it has"""
    refusal: str = ""
    """why it got none at the last try"""
    returns: int = 0
    """policy.returns: the latest request to give that back"""
    owes: bool = False
    """that request is not answered yet"""

    partly: bool = False
    """and that some of it could not leave yet"""
    leaves: bool = False
    """FLAG_LEAVES: where the arena has no room for all of it, it leaves in parts"""
    comes: bool = False
    """FLAG_COMES: it comes home in parts, as the GPU has room"""
    lazy: bool = False
    """what parks from now on is to come back lazily, whatever the setting"""
    returns_lazily: bool = False
    """what was told last is that it runs while its memory comes home"""
    deep: int = 0
    """policy.deep: it is to stay out of the driver"""
    deeps: int = 0
    """the latest such request"""

    def next(self, away: bool) -> int:
        """A request that differs from the latest."""
        self.asked = ((self.asked | layout.PARK_WANTED) + 1 | (layout.PARK_WANTED if away else 0)) & 0xFFFFFFFF
        return self.asked

    def why_not(self, reason: int) -> str:
        """A refusal in words."""
        text = REASONS.get(reason, f"its library gave reason {reason}, which this daemon does not know")
        return f"{text}: {self.refusal}" if reason == layout.PARK_ARENA and self.refusal else text
