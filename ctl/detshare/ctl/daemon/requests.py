# SPDX-License-Identifier: Apache-2.0
"""How long the requests of programs take, as they report it themselves: a bounded window for each, for snapshots."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.observed import Requests
from detshare.ctl.core.procfs import start_time
from detshare.ctl.core.snapshot import Snapshot
from detshare.ctl.daemon.kinship import may_speak_for

__all__ = ["ENOUGH", "LONGEST_S", "MOST_SENDERS", "WINDOW_S", "Table", "Window", "values_of"]

WINDOW_S: Final = 4.0
ENOUGH: Final = 100
"""requests: a window with fewer reaches further back"""
LONGEST_S: Final = 60.0
"""how far back at most"""
MOST_SENDERS: Final = 256
"""programs with a window of their own"""
MOST_BUCKETS: Final = 1024
"""of one window: who fills more of them has a shorter one"""
VALUES_S: Final = 20_000
"""of one program a second; what is more is dropped unread"""
SLOT_S: Final = 0.5
SHORTEST_S: Final = 1e-6
LONGEST_REQUEST_S: Final = 3600.0
_STEP: Final = math.log(1.02)
"""two values of one bucket differ by 2 % at most"""
_VALUE: Final = re.compile(rb"[0-9]{1,4}(?:\.[0-9]{0,12})?(?:[eE]-?[0-9]{1,2})?|\.[0-9]{1,12}")
_FOR: Final = re.compile(rb"for ([1-9][0-9]{0,9})")
_CHECK_S: Final = 10.0
"""how long it is believed that a process may speak for another, and that a number is still the same process"""


def values_of(lines: list[bytes]) -> tuple[list[float], int]:
    """Seconds of a request from each line, and how many lines were none."""
    good = []
    for line in lines:
        if _VALUE.fullmatch(line) and 0 < (value := float(line)) <= LONGEST_REQUEST_S:
            good.append(value)
    return good, len(lines) - len(good)


@dataclass(slots=True)
class Window:
    """Latencies of one program, in buckets by half a second. Times are the caller's clock in seconds."""

    slots: deque[tuple[int, Counter[int]]] = field(default_factory=deque)
    """(number of the half second, bucket -> requests), oldest first"""
    buckets: int = 0
    total: int = 0
    last: float = 0.0

    def add(self, values: list[float], now: float) -> None:
        """Requests that ended about now."""
        number = int(now / SLOT_S)
        if not self.slots or self.slots[-1][0] != number:
            self.slots.append((number, Counter()))
        counts = self.slots[-1][1]
        before = len(counts)
        counts.update([math.ceil(math.log(max(value, SHORTEST_S) / SHORTEST_S) / _STEP) for value in values])
        self.buckets += len(counts) - before
        self.total += len(values)
        self.last = now
        self.forget(now)

    def forget(self, now: float) -> None:
        """What is too old, and the oldest where there is too much."""
        first = int((now - LONGEST_S) / SLOT_S)
        while self.slots and (self.slots[0][0] < first or (self.buckets > MOST_BUCKETS and len(self.slots) > 1)):
            self.buckets -= len(self.slots.popleft()[1])

    def figures(self, now: float) -> Requests | None:
        """Of the last WINDOW_S, or of as much longer as it takes to have ENOUGH; None without a request."""
        self.forget(now)
        found: Counter[int] = Counter()
        count, begin = 0, now
        for number, counts in reversed(self.slots):
            if number * SLOT_S < now - WINDOW_S and count >= ENOUGH:
                break
            found.update(counts)
            count += counts.total()
            begin = number * SLOT_S
        if not count:
            return None
        seconds = round(min(LONGEST_S, max(WINDOW_S, now - begin)), 1)
        return Requests(
            count=count,
            seconds=seconds,
            p50_s=_at(found, count, 0.5),
            p99_s=_at(found, count, 0.99),
            age_s=round(max(0.0, now - self.last), 1),
            total=self.total,
        )


def _at(found: Counter[int], count: int, part: float) -> float:
    """The upper end of the bucket in which that part of the requests is reached; three digits."""
    seen = 0
    for bucket in sorted(found):
        seen += found[bucket]
        if seen >= part * count:
            return float(f"{SHORTEST_S * math.exp(bucket * _STEP):.3g}")
    raise AssertionError("the buckets sum to the count")


@dataclass(slots=True)
class _Sender:
    """A process that reports."""

    start: int
    checked: float
    allowance: float = VALUES_S
    filled: float = 0.0
    speaks: dict[int, tuple[bool, float]] = field(default_factory=dict)
    """PID -> whether it may report for that one, and when that was found out"""


class Table:
    """All windows of one daemon. For one thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[int], int | None] = start_time,
        may_speak: Callable[[int, int], bool] = may_speak_for,
    ) -> None:
        self._clock, self._start, self._may_speak = clock, start, may_speak
        self._windows: dict[ProcessId, Window] = {}
        self._senders: dict[int, _Sender] = {}
        self.taken = 0
        """requests"""
        self.refused = 0
        """lines, or whole datagrams, that cannot be meant or may not be said"""
        self.dropped = 0
        """requests beyond what one program may report, or of one program too many"""

    def take(self, pid: int, data: bytes) -> None:
        """What process `pid` sent: lines of seconds, after a line `for PID` those of that program. Never raises."""
        now = self._clock()
        lines = [line for line in data.split(b"\n") if line]
        sender = self._sender(pid, now)
        if sender is None or not lines:
            self.refused += 1
            return
        about = ProcessId(pid, sender.start)
        if named := _FOR.fullmatch(lines[0]):
            lines = lines[1:]
            other = self._other(pid, sender, int(named[1]), now)
            if other is None:
                self.refused += max(1, len(lines))
                return
            about = other
        sender.allowance = min(VALUES_S, sender.allowance + (now - sender.filled) * VALUES_S)
        sender.filled = now
        if sender.allowance < len(lines):
            self.dropped += len(lines)
            return
        sender.allowance -= len(lines)
        values, bad = values_of(lines)
        self.refused += bad
        if not values:
            return
        window = self._windows.get(about)
        if window is None:
            if len(self._windows) >= MOST_SENDERS:
                self._prune(now)
            if len(self._windows) >= MOST_SENDERS:
                self.dropped += len(values)
                return
            window = self._windows[about] = Window()
        window.add(values, now)
        self.taken += len(values)

    def _sender(self, pid: int, now: float) -> _Sender | None:
        known = self._senders.get(pid)
        if known is not None and now - known.checked < _CHECK_S:
            return known
        start = self._start(pid)
        if start is None:
            self._senders.pop(pid, None)
            return None
        if known is not None and known.start == start:
            known.checked = now
            return known
        if len(self._senders) >= 4 * MOST_SENDERS:
            oldest = min(self._senders, key=lambda each: self._senders[each].checked)
            del self._senders[oldest]
        made = self._senders[pid] = _Sender(start, now, filled=now)
        return made

    def _other(self, pid: int, sender: _Sender, about: int, now: float) -> ProcessId | None:
        """The program that the sender names; None where it may not report for that one."""
        start = self._start(about)
        if start is None:
            return None
        found = sender.speaks.get(about)
        if found is None or now - found[1] >= _CHECK_S:
            if len(sender.speaks) >= MOST_SENDERS:
                sender.speaks.clear()
            found = sender.speaks[about] = (about == pid or self._may_speak(pid, about), now)
        return ProcessId(about, start) if found[0] else None

    def _prune(self, now: float) -> None:
        for process, window in list(self._windows.items()):
            if now - window.last > LONGEST_S or self._start(process.pid) != process.start:
                del self._windows[process]

    def add_to(self, seen: Snapshot) -> Snapshot:
        """The same with what was reported of each program."""
        if not self._windows:
            return seen
        now = self._clock()
        for process in [each for each, window in self._windows.items() if now - window.last > LONGEST_S]:
            del self._windows[process]
        programs = []
        for program in seen.programs:
            window = self._windows.get(program.id)
            figures = window.figures(now) if window is not None else None
            programs.append(program if figures is None else dataclasses.replace(program, requests=figures))
        return dataclasses.replace(seen, programs=tuple(programs))
