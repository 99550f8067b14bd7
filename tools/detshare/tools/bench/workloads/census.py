#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels that write which SMs they ran on and when they started, --depth of them queued.

A window's line has, for each kernel, its start (`starts`: microseconds after `base` nanoseconds of the GPU's clock) and
the number of its set of SMs (`sets`); a `set` line gives the SMs of a number. `offset_ns` is what has to be added to
the GPU's clock to get CLOCK_MONOTONIC, at least and at most. Each kernel's results were wiped before it, in the order
of its stream: a block that did not run is counted in `lost`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections import deque
from typing import Any

from driver import CudaError, Device, Kernel  # type: ignore[import-not-found]
from workload import Workload, emit, options  # type: ignore[import-not-found]

NOBODY = 0xFFFFFFFF
BLOCKS_PER_SM = 2
THREADS = 1024
ALIGN_EVERY = 64
"""kernels between two looks at the clocks"""


class Place:
    """Room for the answers of one kernel, on the GPU and here."""

    def __init__(self, device: Device, stream: ctypes.c_void_p, blocks: int, ns: ctypes.c_uint64) -> None:
        self.device, self.stream, self.blocks = device, stream, blocks
        self._sm, self._stamp = device.memory(4 * blocks), device.memory(8 * blocks)
        host, _there = device.mapped(12 * blocks)
        self._stamps = (ctypes.c_uint64 * blocks).from_address(host)
        self._sms = (ctypes.c_uint32 * blocks).from_address(host + 8 * blocks)
        self.kernel: Kernel = device.kernel("census", blocks, THREADS, self._sm, self._stamp, ns)
        self.kernel.stream = stream
        self.event = device.event(blocking=True)

    def launch(self) -> None:
        """Wipe, run, fetch: all queued, in order."""
        call = self.device.call
        call("cuMemsetD8Async", self._sm, ctypes.c_ubyte(0xFF), ctypes.c_size_t(4 * self.blocks), self.stream)
        self.kernel.launch()
        for host, there, size in ((self._sms, self._sm, 4), (self._stamps, self._stamp, 8)):
            call("cuMemcpyDtoHAsync_v2", host, there, ctypes.c_size_t(size * self.blocks), self.stream)
        self.device.record(self.event, self.stream)

    def answer(self) -> tuple[int, frozenset[int], int]:
        """Waits; its first block's start in ns of the GPU's clock, its SMs, and how many blocks did not run."""
        self.device.wait(self.event)
        lost = self._sms[:].count(NOBODY)
        ran = [stamp for stamp, sm in zip(self._stamps, self._sms, strict=True) if sm != NOBODY]
        return min(ran, default=0), frozenset(self._sms) - {NOBODY}, lost


class Clock:
    """What has to be added to the GPU's clock, by kernels that were launched into an empty stream."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=6)

    def look(self, place: Place) -> tuple[int, frozenset[int], int]:
        """Run one kernel alone: it starts after its launch and before its answer."""
        before = time.monotonic_ns()
        place.launch()
        answer = place.answer()
        self._seen.append((before - answer[0], time.monotonic_ns() - answer[0]))
        return answer

    @property
    def offset_ns(self) -> tuple[int, int]:
        """At least and at most; the clocks drift little within the last looks."""
        return max(low for low, _ in self._seen), min(high for _, high in self._seen)


def main() -> int:
    """The program."""
    parser = options(__doc__ or "")
    parser.add_argument("--us", type=float, default=100.0, help="how long each block stays")
    parser.add_argument("--depth", type=int, default=4, help="kernels queued at most")
    args = parser.parse_args()
    work = Workload(args.seconds, args.window)
    try:
        census(Device(), work, args.us, args.depth)
    except CudaError as error:
        print(f"census.py: {error}", file=sys.stderr)
        return 1
    return 0


def census(device: Device, work: Workload, us: float, depth: int) -> None:
    """Until told to end."""
    stream, ns = device.stream(), ctypes.c_uint64(int(us * 1000))
    free = deque(Place(device, stream, device.sms * BLOCKS_PER_SM, ns) for _ in range(depth))
    device.synchronize()  # the memory was wiped in the default stream, for which this one does not wait
    flight: deque[Place] = deque()
    numbers: dict[frozenset[int], int] = {}
    clock = Clock()
    for _ in range(20):
        clock.look(free[0])
    work.ready(sms=device.sms)
    line: dict[str, Any] = {}
    kernels, lost = 0, 0

    def note(answer: tuple[int, frozenset[int], int]) -> None:
        nonlocal line, kernels, lost
        start, sms, missing = answer
        kernels, lost = kernels + 1, lost + missing
        if sms not in numbers:
            numbers[sms] = len(numbers)
            emit("set", t=round(time.monotonic(), 6), number=numbers[sms], sms=sorted(sms))
        if not line:
            line = {"base": start, "starts": [], "sets": []}
        line["starts"].append(round((start - line["base"]) / 1000, 1))
        line["sets"].append(numbers[sms])
        if work.done(items=1, offset_ns=clock.offset_ns, lost=lost, **line):
            line = {}

    while work.running:
        if kernels % ALIGN_EVERY == 0:
            while flight:
                free.append(flight.popleft())
                note(free[-1].answer())
            for _ in range(3):
                note(clock.look(free[0]))
        place = free.popleft()
        place.launch()
        flight.append(place)
        if not free:
            free.append(flight.popleft())
            note(free[-1].answer())
    while flight:
        note(flight.popleft().answer())
    work.summary(kernels=kernels, lost=lost)


if __name__ == "__main__":
    sys.exit(main())
