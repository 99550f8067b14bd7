# SPDX-License-Identifier: Apache-2.0
"""What a gate costs and how fast it is: one stream of one-wave kernels, gates on the word of slot 0 of a board.

``gates.py BOARD host|rck|beside SECONDS``: the host's word; the word that the resident control kernel mirrors; the
host's word while that kernel runs. Prints JSON lines. Stopping is seen by a counter in host memory that each kernel
raises as it starts, so "hold to stop" is the start of the last kernel after the word was set.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Activity
from detshare.runtime.rck import Cuda, map_board

KERNEL_US = 20
DEPTH = 300  # kernels queued ahead
EVERY_US = (50, 75, 100, 200, 1000)
CLOSED_SECONDS = 0.006


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


def say(**line: Any) -> None:
    """One line of raw output."""
    print(json.dumps(line), flush=True)


class Bed:
    """A context, a stream, the kernels, and a word to wait on."""

    def __init__(self, board: Path, source: str) -> None:
        self.source = source
        self.activity = Activity(map_board(board))
        self.word = self.activity.slots[0]
        self.cuda = cuda = Cuda()
        cuda.device_of(self.activity.raw("gpu_uuid"))
        self.context = ctypes.c_void_p()
        cuda.call("cuCtxGetCurrent", ctypes.byref(self.context))
        module, self.work, self.empty = (ctypes.c_void_p() for _ in range(3))
        image = Path(__file__).with_suffix(".ptx").read_bytes() + b"\0"
        cuda.call("cuModuleLoadData", ctypes.byref(module), image)
        cuda.call("cuModuleGetFunction", ctypes.byref(self.work), module, b"work")
        cuda.call("cuModuleGetFunction", ctypes.byref(self.empty), module, b"empty")
        self.stream = ctypes.c_void_p()
        cuda.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        count = ctypes.c_int()
        cuda.call("cuDeviceGetAttribute", ctypes.byref(count), 16, 0)
        self.blocks = count.value
        mark = ctypes.c_void_p()
        cuda.call("cuMemHostAlloc", ctypes.byref(mark), ctypes.c_size_t(4096), 2)
        assert mark.value is not None
        self.mark = ctypes.c_uint32.from_address(mark.value)
        self.mark.value = 0
        self._mark, self._ns = ctypes.c_uint64(mark.value), ctypes.c_uint64(0)
        self._arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._mark), ctypes.addressof(self._ns))
        self.address = ctypes.c_uint64(self._word_address())
        # bound once: a look-up by name for each launch would be part of the figures
        self._launch = cuda.function("cuLaunchKernel")
        self._wait = cuda.function("cuStreamWaitValue32_v2")

    def _word_address(self) -> int:
        page = self.activity.address("magic")
        began = time.perf_counter()
        self.cuda.call("cuMemHostRegister_v2", ctypes.c_void_p(page), ctypes.c_size_t(layout.PAGE_BYTES), 2)
        say(what="register", source=self.source, us=(time.perf_counter() - began) * 1e6)
        if self.source != "rck":
            return self.word.address("word")
        words = ctypes.c_uint64()
        handle = _IpcHandle.from_buffer_copy(self.activity.raw("rck_handle"))
        began = time.perf_counter()
        self.cuda.call("cuIpcOpenMemHandle_v2", ctypes.byref(words), handle, 1)
        say(what="open IPC memory", source=self.source, us=(time.perf_counter() - began) * 1e6)
        return words.value

    def gate(self) -> None:
        """The stream waits until the word is 0."""
        if status := self._wait(self.stream, self.address, ctypes.c_uint(0), 1):
            raise RuntimeError(f"cuStreamWaitValue32_v2 gave {status}")

    def run(self, us: int) -> None:
        """One kernel of that length; 0: an empty one of one block."""
        if us:
            self._ns.value = us * 1000
            grid, threads, function, arguments = self.blocks, 256, self.work, self._arguments
        else:
            grid, threads, function, arguments = 1, 32, self.empty, None
        if status := self._launch(function, grid, 1, 1, threads, 1, 1, 0, self.stream, arguments, None):
            raise RuntimeError(f"cuLaunchKernel gave {status}")

    def sync(self) -> None:
        """All work is done."""
        self.cuda.call("cuStreamSynchronize", self.stream)


def cost(bed: Bed, us: int, every: int, count: int) -> float:
    """us per kernel, from the first launch to the end of all."""
    bed.sync()
    began = time.perf_counter()
    for n in range(count):
        if every and n % every == 0:
            bed.gate()
        bed.run(us)
    bed.sync()
    return (time.perf_counter() - began) / count * 1e6


def costs(bed: Bed) -> None:
    """Of gates, by kernel length and by how much work lies between two; rounds alternated, the best of three."""
    for us in (0, 5, 20, 100):
        choices = [0, 1, *(max(1, every // us) for every in EVERY_US if us)]
        count = 20_000 if us == 0 else max(300, 30_000 // us)
        best = dict.fromkeys(choices, float("inf"))
        for _ in range(3):
            for every in best:
                best[every] = min(best[every], cost(bed, us, every, count))
        for every, per in best.items():
            say(what="cost", source=bed.source, kernel_us=us, launches_per_gate=every, us=per)


def _until(done: Callable[[], bool], seconds: float) -> float:
    began = time.perf_counter()
    while not done():
        if time.perf_counter() - began > seconds:
            raise RuntimeError(f"nothing happened for {seconds:g} s")
    return time.perf_counter() - began


def reaction(bed: Bed, every_us: int, seconds: float) -> None:
    """Hold and release again and again, a feeding thread beside."""
    every, stop, base = max(1, every_us // KERNEL_US), threading.Event(), bed.mark.value
    fault: list[BaseException] = []

    def feed() -> None:
        try:
            bed.cuda.call("cuCtxSetCurrent", bed.context)
            sent = 0
            while not stop.is_set():
                if sent % every == 0:
                    bed.gate()
                bed.run(KERNEL_US)
                sent += 1
                while sent - (bed.mark.value - base) > DEPTH and not stop.is_set():
                    time.sleep(0.0002)
        except RuntimeError as error:
            fault.append(error)

    feeder = threading.Thread(target=feed)
    feeder.start()
    time.sleep(0.05)
    end = time.perf_counter() + seconds
    try:
        while time.perf_counter() < end and not fault:
            time.sleep(0.004)
            began = last = time.perf_counter()
            bed.word.hold(True)
            seen = bed.mark.value
            while (now := time.perf_counter()) < began + CLOSED_SECONDS:
                if bed.mark.value != seen:
                    seen, last = bed.mark.value, now
            bed.word.hold(False)
            released = _until(lambda seen=seen: bed.mark.value != seen, 1.0)  # type: ignore[misc]
            hold = (last - began) * 1e6
            say(what="reaction", source=bed.source, every_us=every_us, hold_us=hold, release_us=released * 1e6)
    finally:
        bed.word.hold(False)
        stop.set()
        feeder.join()
        bed.sync()
    if fault:
        raise fault[0]


def main() -> None:
    """Costs, then reactions at each interval."""
    bed = Bed(Path(sys.argv[1]), sys.argv[2])
    costs(bed)
    if bed.source != "beside":
        for every_us in EVERY_US:
            reaction(bed, every_us, float(sys.argv[3]))


if __name__ == "__main__":
    main()
