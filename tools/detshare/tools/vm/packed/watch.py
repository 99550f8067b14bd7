# SPDX-License-Identifier: Apache-2.0
"""The host's own account of GPU memory, by NVML to the byte, while guests run: watch.py FOLDER.

A JSON line for each sample: seconds, how many lines each guest had said (before and after the question alike, else the
sample is left out), bytes of each process, bytes of the device. Ends with SIGTERM.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

GUESTS = ("sched", "programs")
EVERY_S = 0.05
PROCESSES = 64


class Process(ctypes.Structure):
    """nvmlProcessInfo_t of version 3."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Said:
    """Lines of a guest so far."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._lines = path, 0, 0

    def lines(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as stream:
                stream.seek(self._at)
                more = stream.read()
            self._at += len(more)
            self._lines += more.count(b"\n")
        return self._lines


def main(folder: Path) -> None:
    """Until it is ended."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory, some = ctypes.c_void_p(), Memory(), (Process * PROCESSES)()
    for code in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))):
        if code:
            raise SystemExit(f"NVML says {code}")
    guests = {name: Said(folder / name / "stdout") for name in GUESTS}
    last = None
    while True:
        before = {name: said.lines() for name, said in guests.items()}
        count = ctypes.c_uint(PROCESSES)
        code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), some)
        nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
        now = {name: said.lines() for name, said in guests.items()}
        used = {some[i].pid: some[i].used for i in range(count.value)} if code == 0 else None
        if now == before and (now, used) != last:
            last = (now, used)
            line = {"t": round(time.monotonic(), 3), "lines": now, "used": used, "device": memory.used, "code": code}
            print(json.dumps(line), flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
