# SPDX-License-Identifier: Apache-2.0
"""A CUDA program without end: a kernel every half millisecond, and a line about each hundredth: when it was launched
(CLOCK_MONOTONIC ns), how many SMs it might use, and the highest of them. With a number N each kernel is launched behind
N others of two milliseconds."""

from __future__ import annotations

import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
IMAGE = b"fakecuda 1\nkernel census params=8 duration_us=20\nkernel work params= duration_us=2000\n"
AHEAD = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def call(name: str, *args: object) -> None:
    status = getattr(cuda, name)(*args)
    if status:
        raise SystemExit(f"{name}: CUDA error {status}")


context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
stream, memory = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), IMAGE)
call("cuModuleGetFunction", ctypes.byref(function), module, b"census")
work = ctypes.c_void_p()
call("cuModuleGetFunction", ctypes.byref(work), module, b"work")
call("cuStreamCreate", ctypes.byref(stream), 1)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(8))
params = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
result = (ctypes.c_uint32 * 2)()
while True:
    begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for _ in range(AHEAD):
        call("cuLaunchKernel", work, 264, 1, 1, 64, 1, 1, 0, stream, None, None)
    call("cuLaunchKernel", function, 4, 1, 1, 32, 1, 1, 0, stream, params, None)
    call("cuMemcpyDtoHAsync_v2", result, memory, ctypes.c_size_t(8), stream)
    call("cuStreamSynchronize", stream)
    print(begun, result[0], result[1], flush=True)
    time.sleep(0.0005)
