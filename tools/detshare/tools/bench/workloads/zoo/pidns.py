#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A CUDA program in a pid and mount namespace of its own, as in a container; needs root and util-linux's unshare."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workload import Workload, emit, options  # type: ignore[import-not-found]


def child_of(parent: int) -> int:
    """The PID, in our namespace, of the only child of ``parent``; 0 if it has none."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if int(fields[1]) == parent:
            return int(entry.name)
    return 0


def main() -> None:
    """The program."""
    args = options(__doc__ or "").parse_args()
    unshare = shutil.which("unshare")
    if unshare is None:
        sys.exit("pidns.py: there is no unshare here; install util-linux")
    kernels = Path(__file__).resolve().parent.parent / "kernels.py"
    work = Workload(args.seconds, args.window)
    inside = [sys.executable, str(kernels), "periodic", "--period-ms", "2"]
    command = [unshare, "--pid", "--fork", "--mount-proc", "--kill-child", *inside]
    outer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert outer.stdout is not None
    line = json.loads(outer.stdout.readline() or "{}")
    pid = child_of(outer.pid)
    if line.get("event") != "ready" or not pid:
        outer.kill()
        sys.exit(f"pidns.py: the program in the namespace did not start (rc {outer.wait()}); see the error above")
    work.ready(programs=[pid], inner_pid=line["pid"])
    while work.running and outer.poll() is None:
        work.tick()
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    try:
        outer.communicate(timeout=10.0)  # reads what is left, so that the child never blocks on the pipe
    except subprocess.TimeoutExpired:
        outer.kill()
    emit("summary", count=1)


if __name__ == "__main__":
    main()
