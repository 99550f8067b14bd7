# SPDX-License-Identifier: Apache-2.0
"""A CUDA program by ctypes that does as it is told on stdin. Started with libdetshare.so and the stand-in libcuda."""

from __future__ import annotations

import ctypes
import sys
import time

KERNEL_US = 200
IMAGE = f"fakecuda 1\nkernel busy params= duration_us={KERNEL_US} registers=8 shared=0\n".encode()
library = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> int:
    """A status; 600 is `not ready`, any other but 0 ends the program."""
    status: int = getattr(library, name)(*arguments)
    if status not in (0, 600):
        print(name, "gave", status, flush=True)
        sys.exit(1)
    return status


def main() -> None:
    """Commands: go N; done; free; sync."""
    context, module, function, stream = (ctypes.c_void_p() for _ in range(4))
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), IMAGE)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"busy")
    call("cuStreamCreate", ctypes.byref(stream), 1)
    events: list[ctypes.c_void_p] = []
    print("ready", flush=True)
    for line in sys.stdin:
        what, *rest = line.split()
        began = time.monotonic()
        if what == "go":
            for _ in range(int(rest[0])):
                call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, stream, None, None)
                events.append(ctypes.c_void_p())
                call("cuEventCreate", ctypes.byref(events[-1]), 2)
                call("cuEventRecord", events[-1], stream)
            print(len(events), flush=True)
        elif what == "done":
            print(sum(call("cuEventQuery", event) == 0 for event in events), flush=True)
        elif what == "free":
            memory = ctypes.c_uint64()
            call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))
            call("cuMemFree_v2", memory)
            print(time.monotonic() - began, flush=True)
        elif what == "sync":
            call("cuCtxSynchronize")
            print(time.monotonic() - began, flush=True)


if __name__ == "__main__":
    main()
