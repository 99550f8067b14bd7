#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program whose first context comes 3 s after `ready` and whose second comes when SIGUSR1 arrives.

Each `context` line carries the CLOCK_MONOTONIC time at which the context was there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from driver import Device  # type: ignore[import-not-found]
from workload import Workload, emit, options  # type: ignore[import-not-found]


def main() -> None:
    """The program."""
    parser = options(__doc__ or "")
    parser.add_argument("--delay", type=float, default=3.0, help="seconds from ready to the first context")
    args = parser.parse_args()
    asked: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: asked.append(number))
    work = Workload(args.seconds, args.window)
    work.ready(contexts=0)
    end = time.monotonic() + args.delay
    while work.running and time.monotonic() < end:
        time.sleep(0.01)
    if not work.running:
        return
    device = Device()
    kernel = device.kernel("empty", 1, 1)
    device.synchronize()
    emit("context", n=1, pid=os.getpid(), t=round(time.monotonic(), 6))
    contexts = 1
    while work.running:
        kernel.launch()
        device.synchronize()
        work.done(items=1)
        work.pause(0.002)
        if asked:
            asked.clear()
            second = ctypes.c_void_p()
            device.call("cuCtxCreate_v2", ctypes.byref(second), 0, device.device)
            device.call("cuCtxSetCurrent", device.context)
            contexts += 1
            emit("context", n=contexts, pid=os.getpid(), t=round(time.monotonic(), 6))
    work.summary(contexts=contexts)


if __name__ == "__main__":
    main()
