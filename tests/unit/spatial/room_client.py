# SPDX-License-Identifier: Apache-2.0
"""A CUDA program that works on so many MiB, taken in so many allocations, for so many rounds: each round a kernel adds
1 to each word of a stripe, then a part is read back. Prints a digest of all that it read, and of all its memory.

`room_client.py MIB PARTS ROUNDS NAP_MS [stop] [code=MIB]`; code: what the driver takes
for the kernel at its first launch
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
MIB, PARTS, ROUNDS, NAP_MS = map(int, sys.argv[1:5])
CODE_MIB = next((int(word.removeprefix("code=")) for word in sys.argv[5:] if word.startswith("code=")), 0)
IMAGE = f"fakecuda 1\nkernel mix params=8,4,4,4 duration_us=200 code_mib={CODE_MIB}\n".encode()
SIZE = (MIB << 20) // PARTS


def call(name: str, *args: object) -> None:
    status = getattr(cuda, name)(*args)
    if status:
        print(f"{name}: CUDA error {status}", flush=True)
        raise SystemExit(1)


context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), IMAGE)
call("cuModuleGetFunction", ctypes.byref(function), module, b"mix")
print("ready", flush=True)
sys.stdin.readline()
parts = []
for number in range(PARTS):
    part = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(part), ctypes.c_size_t(SIZE))
    first = (ctypes.c_char * SIZE).from_buffer(bytearray(bytes(range(number, number + 64)) * (SIZE // 64)))
    call("cuMemcpyHtoD_v2", part, first, ctypes.c_size_t(SIZE))
    parts.append(part)
    time.sleep(NAP_MS / 1000)
print("has", flush=True)
if "stop" in sys.argv[5:]:  # it stands still until it is told to go on
    sys.stdin.readline()
seen = hashlib.sha256()
back = (ctypes.c_char * 4096)()
for each in range(ROUNDS):
    part = parts[each % PARTS]
    at = ctypes.c_uint64(part.value + (each * 65536) % (SIZE - 65536))
    values = (at, ctypes.c_uint32(1024), ctypes.c_uint32(1), ctypes.c_uint32(1))
    params = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
    call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, params, None)
    call("cuCtxSynchronize")
    call("cuMemcpyDtoH_v2", back, at, ctypes.c_size_t(4096))
    seen.update(bytes(back))
    time.sleep(NAP_MS / 1000)
for part in parts:
    whole = (ctypes.c_char * SIZE)()
    call("cuMemcpyDtoH_v2", whole, part, ctypes.c_size_t(SIZE))
    seen.update(bytes(whole))
print(seen.hexdigest(), flush=True)
