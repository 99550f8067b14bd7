# SPDX-License-Identifier: Apache-2.0
"""One rank of a training: work, and behind it a collective on a stream of its own, that the next work waits for. With
`graph` the collectives are launched as graphs. It runs up to six steps ahead of its GPU."""

from __future__ import annotations

import ctypes
import os
import random
import sys

cuda = ctypes.CDLL("libcuda.so.1")
REDUCE = b"_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
"""as cuFuncGetName has it, of NCCL 2.28"""
IMAGE = b"fakecuda 1\nkernel work params= duration_us=100\nkernel " + REDUCE + b" params= duration_us=20\n"
AHEAD = 6
WAYS = sys.argv[1:]


def call(name: str, *args: object) -> None:
    status = getattr(cuda, name)(*args)
    if status:
        raise SystemExit(f"{name}: CUDA error {status}")


context, module = ctypes.c_void_p(), ctypes.c_void_p()
work, reduce = ctypes.c_void_p(), ctypes.c_void_p()
compute, communicate, done = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), IMAGE)
call("cuModuleGetFunction", ctypes.byref(work), module, b"work")
call("cuModuleGetFunction", ctypes.byref(reduce), module, REDUCE)
for stream in (compute, communicate):
    call("cuStreamCreate", ctypes.byref(stream), 1)
call("cuEventCreate", ctypes.byref(done), 2)


def all_reduce() -> None:
    call("cuLaunchKernel", reduce, 1, 1, 1, 64, 1, 1, 0, communicate, None, None)


if "graph" in WAYS:
    call("cuStreamBeginCapture_v2", communicate, 2)
    all_reduce()
    call("cuStreamEndCapture", communicate, ctypes.byref(graph))
    call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
dice = random.Random(int(os.environ["RANK"]))
step = 0
while True:
    for _ in range(dice.randint(1, 8)):
        call("cuLaunchKernel", work, 132, 1, 1, 64, 1, 1, 0, compute, None, None)
    call("cuEventRecord", done, compute)
    call("cuStreamWaitEvent", communicate, done, 0)
    if "graph" in WAYS:
        call("cuGraphLaunch", executable, communicate)
    else:
        all_reduce()
    call("cuEventRecord", done, communicate)
    call("cuStreamWaitEvent", compute, done, 0)
    step += 1
    if step % AHEAD == 0:
        call("cuStreamSynchronize", compute)
    print(step, flush=True)
