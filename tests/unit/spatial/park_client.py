# SPDX-License-Identifier: Apache-2.0
"""A CUDA program with memory of so many MiB, which does what it is told: `same` compares all of it with what was
written, `launch` adds 1 to each of its first words, `left` says how many bytes of the GPU are free, `query` asks an
event, `graph` makes an empty one, `name` gives others a handle of 2 MiB more. One line each."""

from __future__ import annotations

import ctypes
import sys
import zlib

cuda = ctypes.CDLL("libcuda.so.1")
IMAGE = b"fakecuda 1\nkernel mix params=8,4,4,4 duration_us=20\n"
SIZE = int(sys.argv[1]) << 20


def call(name: str, *args: object) -> None:
    status = getattr(cuda, name)(*args)
    if status:
        raise SystemExit(f"{name}: CUDA error {status}")


context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory, small = ctypes.c_uint64(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), IMAGE)
call("cuModuleGetFunction", ctypes.byref(function), module, b"mix")
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(SIZE))
call("cuMemAlloc_v2", ctypes.byref(small), ctypes.c_size_t(4096))
model = bytearray(zlib.compress(b"detshare" * 999, 0) * (SIZE // 8000 + 1))[:SIZE]
call("cuMemcpyHtoD_v2", memory, (ctypes.c_char * SIZE).from_buffer(model), ctypes.c_size_t(SIZE))
values = (ctypes.c_uint64(memory.value), ctypes.c_uint32(64), ctypes.c_uint32(1), ctypes.c_uint32(1))
params = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
event = ctypes.c_void_p()
call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
print("ready", flush=True)
for line in sys.stdin:
    match line.strip():
        case "launch":
            call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, params, None)
            call("cuCtxSynchronize")
            for at in range(0, 256, 4):
                word = (int.from_bytes(model[at : at + 4], "little") + 1) & 0xFFFFFFFF
                model[at : at + 4] = word.to_bytes(4, "little")
            print("launched", flush=True)
        case "same":
            back = (ctypes.c_char * SIZE)()
            call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(SIZE))
            print("same" if bytes(back) == bytes(model) else "other", flush=True)
        case "left":
            total = ctypes.c_size_t()
            call("cuDeviceTotalMem_v2", ctypes.byref(total), 0)
            # what cuMemGetInfo says, knows of the program's own parked memory
            cuda.fakecuda_used.restype = ctypes.c_size_t
            print(total.value - cuda.fakecuda_used(0), flush=True)
        case "name":
            other = ctypes.c_uint64()
            call("cuMemAlloc_v2", ctypes.byref(other), ctypes.c_size_t(2 << 20))
            call("cuIpcGetMemHandle", (ctypes.c_char * 64)(), other)
            print("named", flush=True)
        case "graph":
            graph = ctypes.c_void_p()
            call("cuGraphCreate", ctypes.byref(graph), ctypes.c_uint(0))
            call("cuGraphDestroy", graph)
            print("made", flush=True)
        case "query":
            call("cuEventQuery", event)
            print("asked", flush=True)
