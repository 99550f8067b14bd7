# SPDX-License-Identifier: Apache-2.0
"""Who makes no progress though nothing was done to stop it: a pure account of beats, pauses and resumptions."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Standstills"]


@dataclass
class Standstills:
    """Times are monotonic seconds. A program counts from its first beat, and while nobody paused it."""

    bound: float
    """seconds without a beat that count as a lock-up"""
    longest: float = 0.0
    whose: str = ""
    lockups: list[str] = field(default_factory=list)
    """one entry for each, in words"""
    _since: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def beat(self, name: str, when: float) -> None:
        """It made progress, or was let go, or came, at that time."""
        if name in self._since:
            self._look(name, when)
        self._since[name] = when
        self._told.discard(name)

    def away(self, name: str) -> None:
        """It was paused, stopped, or is gone: its time does not count."""
        self._since.pop(name, None)
        self._told.discard(name)

    def look(self, now: float) -> list[str]:
        """Those that have just become a lock-up."""
        return [name for name in self._since if self._look(name, now)]

    def _look(self, name: str, now: float) -> bool:
        still = now - self._since[name]
        if still > self.longest:
            self.longest, self.whose = still, name
        if still <= self.bound or name in self._told:
            return False
        self._told.add(name)
        self.lockups.append(f"{name} made no progress for {still:.1f} s")
        return True
