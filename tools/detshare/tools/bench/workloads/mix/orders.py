# SPDX-License-Identifier: Apache-2.0
"""What the programs of a mix share: orders by standard input, and loops that note when each piece of work ended.

An order is a line of JSON, answered by a line of JSON with the same ``id``:

  {"do": "go", "id": 1, "period_ms": 20}   begin to work; answered by ``going``. ``period_ms``: a server only; with
                                           ``poisson`` (a seed) the mean of exponential times, the same ones each time
  {"do": "stop", "id": 2}                  finish what is queued and rest; answered by ``stopped``

The end of standard input is SIGTERM: nobody is there any more who could end the program. A resting program keeps its
context and all its memory, and gives the GPU nothing to do. Times are CLOCK_MONOTONIC seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import queue
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Orders", "beside", "serve", "step"]

Wait = Callable[[], None]
LOOK = 0.1
"""seconds between two looks at the stop signal while nothing is to be done"""
WINDOW = 0.2
"""seconds between two lines of a program that works"""
SPIN = 0.0003
"""seconds before a request is due in which the clock is watched instead of slept on"""
BACKLOG = 1.0
"""seconds: requests that are later than this are dropped, and counted"""
PR_SET_TIMERSLACK = 29


def beside(name: str, folder: str = "") -> Any:
    """The workload module of that name. Its folder leaves the path at once: transformers looks for a package `kernels`
    there, and would find ours."""
    path = str(Path(__file__).resolve().parent.parent / folder)
    sys.path.insert(0, path)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(path)


emit = beside("workload").emit


class Orders:
    """Lines of standard input, read by a thread. Make it before anything that may change signal handlers."""

    def __init__(self) -> None:
        self.ended = False
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def _end(self, _number: int, _frame: object) -> None:
        self.ended = True

    def _read(self) -> None:
        rest = b""
        while data := os.read(0, 1 << 16):  # not sys.stdin: its lock would be held while the interpreter ends
            *lines, rest = (rest + data).split(b"\n")
            for text in lines:
                with contextlib.suppress(ValueError):
                    line = json.loads(text)
                    if isinstance(line, dict):
                        self._lines.put(line)
        os.kill(os.getpid(), signal.SIGTERM)

    def take(self, wait: float = 0.0) -> dict[str, Any] | None:
        """The next order; None where none comes within so long."""
        if not wait and self._lines.empty():
            return None
        try:
            return self._lines.get(timeout=wait) if wait else self._lines.get_nowait()
        except queue.Empty:
            return None


def _answer(event: str, order: dict[str, Any], **fields: Any) -> None:
    emit(event, id=order.get("id"), t=round(time.monotonic(), 6), **fields)


def _slack() -> None:
    """Sleep to the microsecond: what the timer adds would be in every latency."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _until(due: float) -> None:
    left = due - time.monotonic() - SPIN
    if left > 0:
        time.sleep(left)
    while time.monotonic() < due:
        pass


class _Log:
    """Ends of steps, printed by a thread: a program that waits for the GPU says what it had done before."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._print, name="log", daemon=True).start()

    def add(self, when: float) -> None:
        with self._lock:
            self._times.append(round(when, 6))

    def flush(self) -> None:
        with self._lock:
            if self._times:
                emit("steps", at=self._times)
                self._times = []

    def _print(self) -> None:
        while True:
            time.sleep(WINDOW)
            self.flush()


def step(launch: Callable[[], Wait], orders: Orders, depth: int = 2, **about: Any) -> None:
    """A background: steps without a pause while it is told to, `depth` of them queued at most.

    :param launch: queues one step and returns what waits for its end.
    :param about: what the ready line says of it.
    """
    log, total = _Log(), 0
    flight: deque[Wait] = deque()
    going = False

    def finish() -> None:
        nonlocal total
        flight.popleft()()
        log.add(time.monotonic())
        total += 1

    emit("ready", pid=os.getpid(), t=round(time.monotonic(), 6), **about)
    while not orders.ended:
        order = orders.take(0.0 if going else LOOK)
        if order is not None and order.get("do") in ("go", "stop"):
            going = order["do"] == "go"
            if not going:
                while flight:
                    finish()
                log.flush()
            _answer("going" if going else "stopped", order, total=total)
        if going:
            flight.append(launch())
            if len(flight) >= depth:
                finish()
    while flight:
        finish()
    log.flush()
    emit("summary", t=round(time.monotonic(), 6), count=total)


class _Requests:
    """Latencies of requests, printed between two of them."""

    def __init__(self) -> None:
        self.total = self.dropped = 0
        self._line: dict[str, list[float]] = {"at": [], "latency_us": [], "own_us": []}
        self._answers: dict[str, int] = {}
        self._since = time.monotonic()

    def add(self, due: float, began: float, ended: float) -> None:
        self.total += 1
        self._line["at"].append(round(due, 6))
        self._line["latency_us"].append(round((ended - due) * 1e6, 1))
        self._line["own_us"].append(round((ended - began) * 1e6, 1))
        if ended - self._since >= WINDOW:
            self.flush()

    def gave(self, answer: bytes) -> None:
        """What the request that is added next gave."""
        digest = hashlib.sha256(answer).hexdigest()[:16]
        self._answers[digest] = self._answers.get(digest, 0) + 1

    def flush(self) -> None:
        if self._line["at"]:
            more = {"answers": self._answers} if self._answers else {}
            emit("requests", dropped=self.dropped, **self._line, **more)
            self._line = {"at": [], "latency_us": [], "own_us": []}
            self._answers = {}
        self._since = time.monotonic()


def serve(
    request: Wait,
    orders: Orders,
    observe: Callable[[float], object] | None = None,
    answer: Callable[[], bytes] | None = None,
    **about: Any,
) -> None:
    """A server: a request is due each period, whatever the one before took; or back to back with a period of 0.

    A latency counts from the time at which its request was due. `observe` is told each in seconds.
    Orders may ask for Poisson arrivals.

    :param request: does one request and waits for its end.
    :param answer: what the last request gave, the same each time; asked when its time was taken.
    """
    _slack()
    log = _Requests()
    going, period, due = False, 0.0, 0.0
    dice: random.Random | None = None

    def gap() -> float:
        return dice.expovariate(1.0 / period) if dice is not None else period

    emit("ready", pid=os.getpid(), t=round(time.monotonic(), 6), **about)
    while not orders.ended:
        order = orders.take(0.0 if going else LOOK)
        if order is not None and order.get("do") in ("go", "stop"):
            going = order["do"] == "go"
            period = float(order.get("period_ms", period * 1000.0)) / 1000.0
            dice = random.Random(order["poisson"]) if going and order.get("poisson") is not None else None
            log.flush()
            _answer("going" if going else "stopped", order, total=log.total, dropped=log.dropped)
            due = time.monotonic() + 0.01
        if not going:
            continue
        if period:
            _until(due)
        begin = time.monotonic()
        request()
        end = time.monotonic()
        since = due if period else begin
        if answer is not None:
            log.gave(answer())
        log.add(since, begin, end)
        if observe is not None:
            observe(end - since)
        if period:
            due += gap()
            if end - due > BACKLOG:
                while (later := due + gap()) <= end:
                    log.dropped += 1
                    due = later
    log.flush()
    emit("summary", t=round(time.monotonic(), 6), count=log.total, dropped=log.dropped)
