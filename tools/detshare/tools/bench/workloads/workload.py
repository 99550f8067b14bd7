# SPDX-License-Identifier: Apache-2.0
"""What every workload shares: options, the stop signal, pacing, and JSON lines on standard output.

A workload is an ordinary program: it knows nothing of DetShare and is steered from outside by its PID.
It prints ``ready`` once warmed up, a ``window`` every ``--window`` seconds and a ``summary`` at the end.
Times are CLOCK_MONOTONIC seconds, latencies are microseconds from launch to the end of synchronize.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from typing import Any

__all__ = ["Asked", "Workload", "emit", "options"]


def emit(event: str, **fields: Any) -> None:
    """Print one JSON line and flush it, so that a reader sees it at once."""
    sys.stdout.write(json.dumps({"event": event, **fields}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def options(description: str) -> argparse.ArgumentParser:
    """A parser that already holds the options that all workloads share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=0.0, help="end after so long (0: until SIGTERM)")
    parser.add_argument("--window", type=float, default=1.0, help="seconds between two window lines")
    return parser


class Asked:
    """SIGUSR1, looked at between two requests."""

    def __init__(self) -> None:
        self._count = 0
        signal.signal(signal.SIGUSR1, self._came)

    def _came(self, _number: int, _frame: object) -> None:
        self._count += 1

    def taken(self) -> bool:
        """Whether one came that was not taken yet; takes it."""
        if not self._count:
            return False
        self._count -= 1
        return True


class Workload:
    """Counts finished work per window and says when to stop.

    :param seconds: end after so many seconds from ``ready``; 0 means until SIGTERM or SIGINT.
    :param window: length of a window in seconds; it ends with the first unit of work that passes it, so that
        ``count / (t1 - t0)`` is an exact rate.
    """

    def __init__(self, seconds: float, window: float) -> None:
        self.seconds = seconds
        self.window = window
        self.stopped = False
        self.total = 0
        self.total_items = 0
        self._latencies: list[float] | None = None
        self._count = 0
        self._items = 0
        self._begin = self._t0 = self._due = time.monotonic()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)

    def _stop(self, _signum: int, _frame: object) -> None:
        self.stopped = True

    def ready(self, **fields: Any) -> None:
        """Say that warm-up is over; the first window starts now."""
        self._begin = self._t0 = time.monotonic()
        emit("ready", pid=os.getpid(), t=round(self._begin, 6), **fields)

    @property
    def running(self) -> bool:
        """False once a signal came or ``--seconds`` are over."""
        if self.seconds and time.monotonic() - self._begin >= self.seconds:
            self.stopped = True
        return not self.stopped

    def done(self, latency_ns: int | None = None, count: int = 1, items: int = 0, **fields: Any) -> bool:
        """Record finished work: its latency in nanoseconds (latency programs), requests and items; then `tick`."""
        self._count += count
        self._items += items
        if latency_ns is not None:
            if self._latencies is None:
                self._latencies = []
            self._latencies.append(round(latency_ns / 1000.0, 1))
        return self.tick(**fields)

    def tick(self, **fields: Any) -> bool:
        """Print the window if its time is over; extra fields go into the line. True if printed."""
        now = time.monotonic()
        if now - self._t0 < self.window:
            return False
        line: dict[str, Any] = {"t0": round(self._t0, 6), "t1": round(now, 6), "count": self._count}
        if self._items:
            line["items"] = self._items
        if self._latencies is not None:
            line["latency_us"] = self._latencies
            self._latencies = []
        emit("window", **line, **fields)
        self.total += self._count
        self.total_items += self._items
        self._count = self._items = 0
        self._t0 = now
        return True

    def pause(self, seconds: float) -> None:
        """Sleep between two requests; a signal ends the program, not this sleep."""
        if seconds > 0 and not self.stopped:
            time.sleep(seconds)

    def pace(self, period: float) -> None:
        """Sleep until ``period`` seconds after the last request was due; one that is late is due now."""
        self._due = max(self._due + period, time.monotonic())
        self.pause(self._due - time.monotonic())

    def summary(self, **fields: Any) -> None:
        """Print the totals of the whole run, the last unfinished window included."""
        self.total += self._count
        self.total_items += self._items
        self._count = self._items = 0
        elapsed = time.monotonic() - self._begin
        emit("summary", seconds=round(elapsed, 6), count=self.total, items=self.total_items, **fields)
