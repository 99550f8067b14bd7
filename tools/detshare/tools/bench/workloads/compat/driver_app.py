#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Driver API: --kind contexts (two threads, a context of its own each), fork (a child of a parent without CUDA)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from case import ROUNDS, case  # type: ignore[import-not-found]
from driver import Device  # type: ignore[import-not-found]

A, C = 6364136223846793005, 1442695040888963407


def sums(device: Device, iterations: int = 2000) -> Iterator[bytes]:
    """Sums of integer kernels; each one's seed is the sum before."""
    seed, total = ctypes.c_uint64(1), device.memory(8)
    work = (ctypes.c_uint64(iterations), ctypes.c_uint64(A), ctypes.c_uint64(C), seed, total)
    kernel = device.kernel("affine", device.sms * 4, 256, *work)
    while True:
        device.call("cuMemsetD8_v2", total, ctypes.c_ubyte(0), ctypes.c_size_t(8))
        kernel.launch()
        seed.value = device.read_u64(total)
        yield seed.value.to_bytes(8, "little")


def contexts() -> Iterator[bytes]:
    """The primary context in one thread, a second context in another."""
    first = Device()
    found: dict[int, list[bytes]] = {0: [], 1: []}
    turns = [threading.Semaphore(0), threading.Semaphore(0)]
    done = threading.Semaphore(0)

    def work(n: int) -> None:
        device = first if n == 0 else Device()
        if n:
            other = ctypes.c_void_p()
            device.call("cuCtxCreate_v2", ctypes.byref(other), 0, device.device)
        device.call("cuCtxSetCurrent", device.context if n == 0 else other)
        pieces = sums(device)
        for _ in range(ROUNDS):
            turns[n].acquire()
            found[n].append(next(pieces))
            done.release()

    workers = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(2)]
    for worker in workers:
        worker.start()
    for turn in range(ROUNDS):
        for one in turns:
            one.release()
        for _ in turns:
            if not done.acquire(timeout=60.0):
                sys.exit("driver_app.py: a thread did not finish its piece within 60 s; see the error above")
        yield found[0][turn] + found[1][turn]


def forked() -> None:
    """The child computes and writes to a pipe; the parent, which never touches CUDA, is the program."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(reading)
        pieces = sums(Device())
        for _ in range(ROUNDS):
            os.write(writing, next(pieces))
        signal.pause()
        os._exit(0)
    os.close(writing)

    def pieces_of_child() -> Iterator[bytes]:
        with os.fdopen(reading, "rb") as stream:
            for _ in range(ROUNDS):
                yield stream.read(8)

    try:
        case(pieces_of_child(), [child])
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def main() -> None:
    """The program."""
    kind = sys.argv.pop()
    if kind == "fork":
        forked()
    else:
        case(contexts())


if __name__ == "__main__":
    main()
