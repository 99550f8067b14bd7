#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts and ends --births short-lived CUDA programs at random moments, --at-once of them at a time.

A `birth` line carries the PID and the CLOCK_MONOTONIC time at which the program's context was ready, a `death` line
the time at which it was reaped. Every second program ends by SIGKILL, in the middle of its work.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workload import Workload, emit, options  # type: ignore[import-not-found]

KERNELS = Path(__file__).resolve().parent.parent / "kernels.py"


class Churn:
    """The births that are left, shared by a few threads."""

    def __init__(self, births: int, iterations: int, shortest: float, longest: float) -> None:
        self.left, self.iterations, self.shortest, self.longest = births, iterations, shortest, longest
        self.born = self.failed = 0
        self.lock = threading.Lock()
        self.choose = random.Random(1)

    def say(self, event: str, pid: int, t: float) -> None:
        """One line at a time, whole."""
        with self.lock:
            emit(event, pid=pid, t=round(t, 6))

    def run(self, work: Workload) -> None:
        """One thread: a program after another until none is left."""
        while not work.stopped:
            with self.lock:
                if self.left <= 0:
                    return
                self.left -= 1
                life = self.choose.uniform(self.shortest, self.longest)
                rest, kill = self.choose.uniform(0.0, 0.3), self.left % 2 == 0
            time.sleep(rest)
            self.one(life, kill)

    def one(self, life: float, kill: bool) -> None:
        """Start one program, let it live ``life`` seconds from ready, end it."""
        command = [sys.executable, str(KERNELS), "periodic", "--iterations", str(self.iterations), "--window", "3600"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        line = json.loads(child.stdout.readline() or "{}")
        if line.get("event") == "ready":
            self.say("birth", child.pid, line["t"])
            with self.lock:
                self.born += 1
            time.sleep(life)
        else:
            with self.lock:
                self.failed += 1
        if kill:
            child.kill()
        else:
            child.terminate()
        child.communicate()
        self.say("death", child.pid, time.monotonic())


def main() -> None:
    """The program."""
    parser = options(__doc__ or "")
    parser.add_argument("--births", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=20000, help="work per kernel of a short-lived program")
    parser.add_argument("--shortest", type=float, default=0.3, help="seconds a program lives at least")
    parser.add_argument("--longest", type=float, default=1.5, help="seconds a program lives at most")
    args = parser.parse_args()
    work = Workload(args.seconds, args.window)
    churn = Churn(args.births, args.iterations, args.shortest, args.longest)
    work.ready(programs=[], births=args.births)
    threads = [threading.Thread(target=churn.run, args=(work,)) for _ in range(args.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
            work.running  # noqa: B018  (the property sets `stopped` when --seconds are over)
    work.summary(born=churn.born, failed=churn.failed)


if __name__ == "__main__":
    main()
