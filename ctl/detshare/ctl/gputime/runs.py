# SPDX-License-Identifier: Apache-2.0
"""Runs of programs, built from the records of one GPU's context-switch log."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from detshare.ctl.core.gputime import Run, Switch

_AT: Final = itemgetter(0)
"""of a Switch: its time. Records of one time stay in the order in which they came"""


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
        # one loop over plain values: this is most of what reading a log costs
        closed: list[Run] = []
        running, until_ns, make = self._running, self._until_ns, tuple.__new__
        for switch in sorted(switches, key=_AT):
            at_ns, pid, context, starts = switch
            if running is None:
                if starts and at_ns >= until_ns:
                    running = switch
                continue
            since_ns, its_pid, its_context, _ = running
            if at_ns < since_ns or (starts and at_ns < until_ns):
                continue
            same = context == its_context and pid == its_pid
            # its start while it runs means that its end was lost, and nobody knows when that was
            if same != starts:
                if at_ns > since_ns:
                    closed.append(make(Run, (its_pid, since_ns, at_ns)))
                    until_ns = at_ns
                running = None
            if starts:
                running = switch
        self._running, self._until_ns = running, until_ns
        return closed

    def open_runs(self, now_ns: int) -> list[Run]:
        """The run that still goes on, until `now_ns` on the GPU's clock: one, or none."""
        running = self._running
        return [Run(running.pid, running.at_ns, now_ns)] if running is not None and now_ns > running.at_ns else []

    def lost(self) -> None:
        """Records were dropped since the last call: nobody knows when the open run ended."""
        self._running = None
