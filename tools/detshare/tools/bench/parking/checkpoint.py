# SPDX-License-Identifier: Apache-2.0
"""The driver's own checkpoint of another process (cuCheckpointProcess*), as a baseline: ``python -m ... PID``."""

from __future__ import annotations

import ctypes
import json
import sys
import time

__all__ = ["main"]


class _LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs of CUDA 12.8."""

    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


def main() -> int:
    """Lock, checkpoint, restore and unlock a process; prints the seconds of each as JSON."""
    pid = int(sys.argv[1])
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        calls = {
            name: getattr(cuda, f"cuCheckpointProcess{name}") for name in ("Lock", "Checkpoint", "Restore", "Unlock")
        }
    except (OSError, AttributeError) as error:
        print(f"no checkpoint in this driver: {error}", file=sys.stderr)
        return 1
    lock = _LockArgs(timeout_ms=60000)
    seconds = {}
    if status := cuda.cuInit(0):
        print(f"cuInit gave {status}", file=sys.stderr)
        return 1
    for name, call in calls.items():
        began = time.perf_counter()
        if status := call(pid, ctypes.byref(lock) if name == "Lock" else None):
            print(f"cuCheckpointProcess{name} gave {status}", file=sys.stderr)
            return 1
        seconds[name.lower()] = time.perf_counter() - began
    print(json.dumps(seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
