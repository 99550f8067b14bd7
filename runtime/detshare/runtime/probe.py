# SPDX-License-Identifier: Apache-2.0
"""Makes and drops a context on each GPU, as the next CUDA program would. Exit code 0, or 1 with what stopped it."""

from __future__ import annotations

import ctypes
import sys


def main() -> int:
    """Ask the driver that this environment names."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"libcuda.so.1: {error}")
        return 1
    count = ctypes.c_int()
    for what, status in (("cuInit", cuda.cuInit(0)), ("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))):
        if status:
            print(f"{what}: CUDA error {status}")
            return 1
    for number in range(count.value):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        cuda.cuDeviceGet(ctypes.byref(device), number)
        status = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if status:
            print(f"cuDevicePrimaryCtxRetain of GPU {number}: CUDA error {status}")
            return 1
        cuda.cuDevicePrimaryCtxRelease_v2(device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
