#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A parent that never touches CUDA, a forked worker and a worker started by multiprocessing's spawn; both use CUDA."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workload import Workload, emit, options  # type: ignore[import-not-found]


def worker(ready: Connection) -> None:
    """Make a context, say so, and launch empty kernels until SIGTERM."""
    from driver import Device  # type: ignore[import-not-found]

    work = Workload(0.0, 3600.0)
    kernel = (device := Device()).kernel("empty", 1, 1)
    ready.send(os.getpid())
    while work.running:
        kernel.launch()
        device.synchronize()
        work.pause(0.001)


def main() -> None:
    """The program."""
    args = options(__doc__ or "").parse_args()
    mine, theirs = multiprocessing.Pipe()
    forked = os.fork()
    if not forked:
        worker(theirs)
        os._exit(0)
    spawned = multiprocessing.get_context("spawn").Process(target=worker, args=(theirs,))
    spawned.start()
    work = Workload(args.seconds, args.window)
    try:
        programs = sorted(mine.recv() for _ in range(2) if mine.poll(60.0))
        if len(programs) < 2:
            sys.exit(f"forked.py: only {programs} of two workers made a context within 60 s; see the error above")
        work.ready(programs=programs, forked=forked, spawned=spawned.pid)
        while work.running:
            work.tick()
            time.sleep(0.05)
    finally:
        os.kill(forked, signal.SIGTERM)
        spawned.terminate()
        os.waitpid(forked, 0)
        spawned.join(10.0)
    emit("summary", count=2)


if __name__ == "__main__":
    main()
