#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program pays the driver, and a small program to share the GPU with. No PyTorch; one MODE each.

Each but `context` says `ready` and takes orders (workloads/mix/orders.py):

calls: told to go, times launches, allocations, frees, small calls and copies; one `costs` line, us and GB/s.
context: milliseconds from cuInit to the first allocation of a fresh process, and exit.
fill: told to go, allocates up to --mib, chunk by chunk, and beyond; a `filled` line. 0 MiB: only what the GPU refuses.
serve: requests of one kernel of about --us on half of the SMs.
hold: --mib of memory and kernels of about --us that fill the GPU, back to back.
move: requests that copy --mib along a --path: within the GPU, again and again within its L2, from pinned memory to it.
managed: told to go, moves --mib of managed memory to and fro; one `moved` line, ms. It never fills the GPU.
watch: a small kernel every 10 ms, and how much memory the driver calls free.
fault: told to go, a kernel writes where no memory is; a `faulted` line, and exit.
Times in Python by ctypes: some hundred nanoseconds of each call are the interpreter's, under each way the same.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mix"))
from orders import LOOK, Orders, beside, emit, serve, step  # type: ignore[import-not-found]

driver = beside("driver")
MODES = ("calls", "context", "fill", "serve", "hold", "move", "managed", "watch", "fault")
KIB, MIB = 1 << 10, 1 << 20
SIZES = {"1 KiB": KIB, "1 MiB": MIB, "16 MiB": 16 * MIB, "64 MiB": 64 * MIB, "256 MiB": 256 * MIB}
CHUNK = 2 * MIB
"""of memory under a limit: what the driver allocates at least"""
THREADS, EACH = 8, 50
"""that allocate at the same time, and how often each"""
AGAIN = 16
"""copies of one request within L2"""
ATTACH_GLOBAL, CPU = 1, -1  # CU_MEM_ATTACH_GLOBAL, CU_DEVICE_CPU
BEYOND = 100 * MIB
"""more than is free: what a refusal is asked for"""


def timed(call: Callable[[], object], times: int, after: Callable[[], object] | None = None) -> list[float]:
    """Microseconds of each call; `after` runs between two, not timed."""
    took = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        call()
        took.append((time.perf_counter_ns() - begin) / 1e3)
        if after is not None:
            after()
    return took


class Memory:
    """Allocations by the bare calls, whose status is an answer here."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def take(self, size: int) -> tuple[int, int]:
        """Status and address."""
        address = ctypes.c_uint64()
        return self.device.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), address.value

    def give(self, address: int) -> None:
        """Free it. CudaError."""
        self.device.call("cuMemFree_v2", ctypes.c_uint64(address))

    def free(self) -> tuple[int, int]:
        """Bytes: free, and of the GPU, as the driver says."""
        left, whole = ctypes.c_size_t(), ctypes.c_size_t()
        self.device.call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(whole))
        return left.value, whole.value

    def name(self, status: int) -> str:
        """The driver's word for a status."""
        text = ctypes.c_char_p()
        self.device.cuda.cuGetErrorName(status, ctypes.byref(text))
        return (text.value or b"unknown error").decode()


def allocations(memory: Memory, times: int) -> dict[str, float]:
    """Medians of taking and of giving back, for each size."""
    found = {}
    for name, size in SIZES.items():
        take, give = [], []
        for _ in range(times):
            begin = time.perf_counter_ns()
            status, address = memory.take(size)
            middle = time.perf_counter_ns()
            if status:
                break
            memory.give(address)
            take.append((middle - begin) / 1e3)
            give.append((time.perf_counter_ns() - middle) / 1e3)
        if take:
            found[f"allocate {name}"], found[f"free {name}"] = statistics.median(take), statistics.median(give)
    return found


def contended(memory: Memory) -> float:
    """The 95th percentile of allocations of 1 MiB by 8 threads at once."""
    took: list[list[float]] = [[] for _ in range(THREADS)]

    def work(mine: list[float]) -> None:
        memory.device.call("cuCtxSetCurrent", memory.device.context)
        for _ in range(EACH):
            begin = time.perf_counter_ns()
            status, address = memory.take(MIB)
            mine.append((time.perf_counter_ns() - begin) / 1e3)
            if not status:
                memory.give(address)

    some = [threading.Thread(target=work, args=(mine,)) for mine in took]
    for each in some:
        each.start()
    for each in some:
        each.join()
    every = sorted(one for mine in took for one in mine)
    return every[int(0.95 * (len(every) - 1))]


def copies(device: Any) -> dict[str, float]:
    """GB/s of 64 MiB to the GPU and back, pinned and from ordinary memory."""
    size = 64 * MIB
    there = device.memory(size)
    pinned = ctypes.c_void_p()
    device.call("cuMemAllocHost_v2", ctypes.byref(pinned), ctypes.c_size_t(size))
    plain = ctypes.create_string_buffer(size)
    length = ctypes.c_size_t(size)

    def rate(call: Callable[[], object]) -> float:
        call()
        return size / 1e3 / statistics.median(timed(call, 8))

    found = {
        "copy to the GPU, pinned": rate(lambda: device.call("cuMemcpyHtoD_v2", there, pinned, length)),
        "copy from the GPU, pinned": rate(lambda: device.call("cuMemcpyDtoH_v2", pinned, there, length)),
        "copy to the GPU, not pinned": rate(lambda: device.call("cuMemcpyHtoD_v2", there, plain, length)),
    }
    device.call("cuMemFreeHost", pinned)
    device.call("cuMemFree_v2", there)
    return found


def costs(device: Any, times: int) -> dict[str, float]:
    """All of mode `calls`."""
    kernel, memory, count = device.kernel("empty", 1, 1), Memory(device), ctypes.c_int()

    def both() -> None:
        kernel.launch()
        device.synchronize()

    timed(both, 100)
    found = {
        "launch and wait": statistics.median(timed(both, times)),
        "launch": statistics.median(timed(kernel.launch, times)),
    }
    device.synchronize()
    found["cuDeviceGetCount"] = statistics.median(
        timed(lambda: device.cuda.cuDeviceGetCount(ctypes.byref(count)), times)
    )
    found |= allocations(memory, min(50, times))
    found["allocate 1 MiB, 8 threads, p95"] = contended(memory)
    return found | copies(device)


def fill(memory: Memory, most: int, times: int) -> dict[str, Any]:
    """What was allocated before the first refusal, its error, and how long refusals take."""
    free, whole = memory.free()
    held: list[int] = []
    status = 0
    while most and len(held) * CHUNK < 2 * most:
        status, address = memory.take(CHUNK)
        if status:
            break
        held.append(address)
    size = CHUNK if status else free + BEYOND
    status = memory.take(size)[0] or status
    took = timed(lambda: memory.take(size), times) if status else []
    for address in held:
        memory.give(address)
    return {
        "bytes": len(held) * CHUNK,
        "error": memory.name(status) if status else "",
        "refuse_us": statistics.median(took) if took else None,
        "free": free,
        "whole": whole,
    }


def burner(device: Any, us: float, per_sm: int, part: float = 1.0) -> Any:
    """The kernel `burn` of about so long on a part of the SMs; right only on an idle GPU."""
    words = argparse.Namespace(iterations=[0], sms=max(1, int(part * device.sms)), us=us)
    return beside("kernels").burner(device, words, per_sm)[0]


def mover(device: Any, path: str, size: int) -> Callable[[], None]:
    """One request of mode `move`: done when it returns."""
    length, there = ctypes.c_size_t(size), device.memory(size)
    if path == "host":
        pinned = ctypes.c_void_p()
        device.call("cuMemAllocHost_v2", ctypes.byref(pinned), length)
        return lambda: device.call("cuMemcpyHtoD_v2", there, pinned, length)
    other, times = device.memory(size), AGAIN if path == "cache" else 1

    def copy() -> None:
        for _ in range(times):
            device.call("cuMemcpyDtoDAsync_v2", other, there, length, None)
        device.synchronize()

    return copy


def moved(device: Any, size: int, times: int) -> dict[str, float]:
    """Of mode `managed`: milliseconds, medians. Its pages are on the CPU at the beginning of each round."""
    address, length = ctypes.c_uint64(), ctypes.c_size_t(size)
    device.call("cuMemAllocManaged", ctypes.byref(address), length, ATTACH_GLOBAL)
    found: dict[str, list[float]] = {"touched by the GPU": [], "prefetched to the GPU": [], "prefetched to the CPU": []}

    def prefetch(where: int) -> float:
        begin = time.perf_counter_ns()
        device.call("cuMemPrefetchAsync", address, length, where, None)
        device.synchronize()
        return (time.perf_counter_ns() - begin) / 1e6

    for _ in range(times):
        ctypes.memset(address.value or 0, 1, size)
        found["prefetched to the GPU"].append(prefetch(device.device))
        found["prefetched to the CPU"].append(prefetch(CPU))
        begin = time.perf_counter_ns()
        device.call("cuMemsetD8_v2", address, ctypes.c_ubyte(2), length)
        device.synchronize()
        found["touched by the GPU"].append((time.perf_counter_ns() - begin) / 1e6)
    device.call("cuMemFree_v2", address)
    return {what: statistics.median(some) for what, some in found.items()}


def once(orders: Orders, do: Callable[[], dict[str, Any]], event: str, **about: Any) -> None:
    """Do it when told to go, say what came out, and rest until the end."""
    emit("ready", pid=os.getpid(), t=round(time.monotonic(), 6), **about)
    while not orders.ended:
        order = orders.take(LOOK)
        if order is None:
            continue
        if order.get("do") == "go":
            found = do()
            emit(event, t=round(time.monotonic(), 6), id=order.get("id"), **found)
        emit("going" if order.get("do") == "go" else "stopped", t=round(time.monotonic(), 6), id=order.get("id"))
    emit("summary", t=round(time.monotonic(), 6))


def watch(device: Any, orders: Orders, about: dict[str, Any]) -> None:
    """Until it is told to end."""
    kernel, memory = device.kernel("empty", 1, 1), Memory(device)
    emit("ready", pid=os.getpid(), t=round(time.monotonic(), 6), **about)
    while not orders.ended:
        kernel.launch()
        device.synchronize()
        emit("free", t=round(time.monotonic(), 6), bytes=memory.free()[0])
        time.sleep(0.01)
    emit("summary", t=round(time.monotonic(), 6))


def held(device: Any, orders: Orders, args: argparse.Namespace, about: dict[str, Any]) -> None:
    """Memory, and kernels back to back."""
    kept = device.memory(args.mib * MIB) if args.mib else None
    kernel = burner(device, args.us, 0)

    def launch() -> Callable[[], None]:
        kernel.launch()
        event = device.event(blocking=True)
        device.record(event)

        def wait() -> None:
            device.wait(event)
            device.call("cuEventDestroy_v2", event)

        return wait

    step(launch, orders, 2, held=bool(kept), **about)


def fault(device: Any) -> dict[str, Any]:
    """Reach where nothing is; what the driver calls that, and when it did."""
    kernel, begin = device.kernel("fault", 1, 32), time.perf_counter_ns()
    try:
        kernel.launch()
        device.synchronize()
        said = ""
    except driver.CudaError as error:
        said = str(error)
    return {"error": said, "us": (time.perf_counter_ns() - begin) / 1e3}


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--mib", type=int, default=0)
    parser.add_argument("--path", choices=("device", "cache", "host"), default="device", help="move: which way")
    parser.add_argument("--us", type=float, default=500.0)
    parser.add_argument("--times", type=int, default=1000)
    args = parser.parse_args()
    orders = Orders()
    try:
        begin = time.perf_counter_ns()
        device = driver.Device()
        memory = Memory(device)
        memory.take(KIB)
        about = {"what": f"cost.py {args.mode}", "instead": ""}
        if args.mode == "context":
            emit("context", ms=(time.perf_counter_ns() - begin) / 1e6)
        elif args.mode == "calls":
            once(orders, lambda: {"seen": costs(device, args.times)}, "costs", **about)
        elif args.mode == "fill":
            once(orders, lambda: fill(memory, args.mib * MIB, min(50, args.times)), "filled", **about)
        elif args.mode == "fault":
            once(orders, lambda: fault(device), "faulted", **about)
        elif args.mode == "move":
            serve(mover(device, args.path, args.mib * MIB), orders, **about)
        elif args.mode == "managed":
            once(orders, lambda: {"seen": moved(device, args.mib * MIB, min(5, args.times))}, "moved", **about)
        elif args.mode == "watch":
            watch(device, orders, about)
        elif args.mode == "hold":
            held(device, orders, args, about)
        else:
            kernel = burner(device, args.us, 1, 0.5)

            def request() -> None:
                kernel.launch()
                device.synchronize()

            serve(request, orders, **about)
    except driver.CudaError as error:
        print(f"cost.py {args.mode}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
