# SPDX-License-Identifier: Apache-2.0
"""Launches of programs that nobody asks, for snapshots: seen by eBPF where `daemon.launches` says so.

Sums are kept in the kernel and read with each look, so a launch costs its program a probe and the daemon nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.observed import SOURCE, Grid, Observed, Requests
from detshare.ctl.core.snapshot import Check, Snapshot
from detshare.ctl.daemon.requests import Window
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.launch_watch import LaunchWatch, Sums
from detshare.ebpf.launches import seconds_of

__all__ = ["Launched"]

log = logging.getLogger("detshared.launches")

WINDOW_S: Final = 1.0
"""over which rates are formed"""
MOST_GRIDS: Final = 16
MOST_AT_ONCE: Final = 10_000
"""requests of one length that a look adds"""


@dataclass(slots=True)
class _Known:
    """Of one program."""

    samples: deque[tuple[float, int, int]] = field(default_factory=deque)
    """(seconds, launches, graph launches)"""
    shapes: Counter[tuple[int, int]] = field(default_factory=Counter)
    """as they were when a window began"""
    shaped_at: float = 0.0
    blocks: int = 0
    requests: dict[int, int] = field(default_factory=dict)
    """bucket -> how many were seen so far; empty at first, and what was before is left out"""
    window: Window | None = None


class Launched:
    """The watch of one daemon; `wanted` False: there is none. add_to() is for one thread."""

    def __init__(self, wanted: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._wanted, self._clock = wanted, clock
        self._watch: LaunchWatch | None = None
        self._problem: EbpfError | None = None
        self._unread = ""
        """why what was seen could not be read the last time; empty: it could"""
        self._known: dict[ProcessId, _Known] = {}

    async def open(self) -> None:
        """Begins to watch. Where that cannot be, the rest of the daemon goes on without."""
        if not self._wanted:
            return
        try:
            self._watch = await asyncio.to_thread(LaunchWatch)
        except EbpfError as error:
            self._problem = error
            log.warning("launches are not watched: %s", error)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The same with what was seen of each program."""
        if self._watch is None:
            return snapshot
        try:
            sums, now = self._watch.read(), self._clock()
        except (EbpfError, OSError) as error:  # a look tells of programs, with or without this
            if not self._unread:
                log.warning("launches cannot be read, looks go on without: %s", error)
            self._unread = f"they cannot be read: {error}"
            return snapshot
        self._unread = ""
        before = {process.pid: process for process in self._known}
        known: dict[ProcessId, _Known] = {}
        programs = []
        for program in snapshot.programs:
            found = sums.get(program.id.pid)
            if found is not None and before.get(program.id.pid, program.id) != program.id:
                self._watch.forget(program.id.pid)  # the number is another program's now
                found = None
            if found is None:
                programs.append(program)
                continue
            mine = known[program.id] = self._known.get(program.id) or _Known()
            seen = _observed(found, mine, now)
            programs.append(dataclasses.replace(program, observed=seen, requests=_requests(found, mine, now)))
        self._known = known
        return dataclasses.replace(snapshot, programs=tuple(programs))

    def doctor(self) -> list[Check]:
        """A line where it was wanted."""
        if self._problem is not None:
            return [Check("launches", False, f"not watched: {self._problem.why}", self._problem.advice)]
        if self._watch is None:
            return []
        if self._unread:
            return [Check("launches", False, self._unread, "restart detshared; see dmesg if it stays so")]
        notes = self._watch.notes()
        said = f"launches are watched by eBPF ({self._watch.how})"
        return [Check("launches", None if notes else True, "; ".join(notes) or said)]

    async def close(self) -> None:
        """Idempotent."""
        if self._watch is not None:
            await asyncio.to_thread(self._watch.close)


def _observed(sums: Sums, known: _Known, now: float) -> Observed:
    launches_per_s, graphs_per_s = _rates(known, now, sums)
    if now - known.shaped_at >= WINDOW_S:
        fresh = sums.shapes - known.shapes
        if fresh:
            known.blocks = max(fresh, key=lambda shape: (fresh[shape], shape))[0]
        known.shapes, known.shaped_at = sums.shapes.copy(), now
    return Observed(
        launches=sums.launches,
        graph_launches=sums.graphs,
        copies=sums.copies,
        copied_bytes=sums.copied_bytes,
        fills=sums.fills,
        waits=sums.waits,
        wait_ms=round(sums.wait_ns / 1e6, 3),
        launches_per_s=launches_per_s,
        graph_launches_per_s=graphs_per_s,
        blocks=known.blocks,
        grids=tuple(Grid(*shape, count) for shape, count in sums.shapes.most_common(MOST_GRIDS)),
        partial=sums.partial,
    )


def _requests(sums: Sums, known: _Known, now: float) -> Requests | None:
    """What looks like requests from outside: from the first launch after a wait to the end of the next wait."""
    if known.window is None:
        known.window, known.requests = Window(), sums.requests
        return None
    for bucket, count in sums.requests.items():
        fresh = count - known.requests.get(bucket, 0)
        if fresh > 0:
            known.window.add([seconds_of(bucket)] * min(fresh, MOST_AT_ONCE), now)
    known.requests = sums.requests
    found = known.window.figures(now)
    return None if found is None else dataclasses.replace(found, source=SOURCE)


def _rates(known: _Known, now: float, sums: Sums) -> tuple[float, float]:
    samples = known.samples
    samples.append((now, sums.launches, sums.graphs))
    while len(samples) > 2 and now - samples[1][0] >= WINDOW_S:
        samples.popleft()
    begun, launches, graphs = samples[0]
    seconds = now - begun
    if seconds <= 0:
        return 0.0, 0.0
    return _two((sums.launches - launches) / seconds), _two((sums.graphs - graphs) / seconds)


def _two(rate: float) -> float:
    """Two digits: what wobbles beyond them is no news."""
    return float(f"{max(0.0, rate):.2g}")
