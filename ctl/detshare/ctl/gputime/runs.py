# SPDX-License-Identifier: Apache-2.0
"""Runs of programs, built from the records of one GPU's context-switch log."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from detshare.ctl.core.gputime import Run, Switch


class RunBook:
    """Builds runs from switches as they come, part by part. A GPU runs one context at a time.

    Runs that it returns never overlap and never go back in time, over all calls. What cannot be known is left out:
    an end without a start, a start that comes after a later one, a run of no length.
    """

    def __init__(self) -> None:
        self._running: Switch | None = None
        self._until_ns = 0
        """no run begins before: the end of the last one that was returned"""

    def feed(self, switches: Iterable[Switch]) -> list[Run]:
        """Take the next records, in any order among themselves; the runs that they close, oldest first."""
        closed: list[Run] = []
        for switch in sorted(switches, key=attrgetter("at_ns")):
            if switch.starts:
                self._begin(switch, closed)
            elif self._is_running(switch):
                self._close(switch.at_ns, closed)
        return closed

    def open_runs(self, now_ns: int) -> list[Run]:
        """The run that still goes on, until `now_ns` on the GPU's clock: one, or none."""
        running = self._running
        return [Run(running.pid, running.at_ns, now_ns)] if running is not None and now_ns > running.at_ns else []

    def lost(self) -> None:
        """Records were dropped since the last call: nobody knows when the open run ended."""
        self._running = None

    def _begin(self, switch: Switch, closed: list[Run]) -> None:
        running = self._running
        if switch.at_ns < self._until_ns or (running is not None and switch.at_ns < running.at_ns):
            return
        if running is not None and not self._same(running, switch):
            self._close(switch.at_ns, closed)
        self._running = switch

    def _close(self, end_ns: int, closed: list[Run]) -> None:
        running = self._running
        if running is None:
            return
        if end_ns > running.at_ns:
            closed.append(Run(running.pid, running.at_ns, end_ns))
            self._until_ns = end_ns
        self._running = None

    def _is_running(self, switch: Switch) -> bool:
        running = self._running
        return running is not None and self._same(running, switch) and switch.at_ns >= running.at_ns

    @staticmethod
    def _same(one: Switch, other: Switch) -> bool:
        """Of one context; its start while it runs means that its end was lost, and nobody knows when that was."""
        return (one.pid, one.context) == (other.pid, other.context)
