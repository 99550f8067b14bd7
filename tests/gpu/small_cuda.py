# SPDX-License-Identifier: Apache-2.0
"""A small CUDA program by libcuda alone: a context, a little work now and then, and the driver's own words if it fails.

    python small_cuda.py

It says "up" when its context works, and goes on until it is killed or its input ends.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys

_BYTES = 16 << 20
_PAUSE_S = 0.01


def main() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()

    def call(name: str, *args: object) -> None:
        code = getattr(cuda, name)(*args)
        if code:
            sys.exit(f"{name}: CUDA error {code}")

    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(_BYTES))
    told = False
    while True:
        call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), ctypes.c_size_t(_BYTES))
        call("cuCtxSynchronize")
        if not told:
            print("up", flush=True)
            told = True
        if select.select([sys.stdin], [], [], _PAUSE_S)[0] and not os.read(0, 1):
            return


if __name__ == "__main__":
    main()
