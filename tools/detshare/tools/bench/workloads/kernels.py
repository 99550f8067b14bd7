#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small CUDA kernels without PyTorch, one MODE per question.

periodic: one kernel of about --us every --period-ms, launch and synchronize timed; with --burst so many requests, then
  --idle-ms without any, the first of each burst apart (`first_us`); SIGUSR1 turns bursts on and off.
saturate: kernels that fill all SMs, back to back, --depth of them queued; counts finished kernels. With several
  --iterations SIGUSR1 goes on to the next size, and a `size` line says that only kernels of it are queued.
endless: one kernel that never ends by itself; its progress counter in mapped host memory is printed.
parked: a stream that waits for a word of memory until the program ends; nothing runs.
verify: integer work with a known answer, each answer checked.
launchloop: nanoseconds per launch of an empty kernel.
graphloop: the same of a CUDA graph of 20 empty kernels.
context: milliseconds from cuInit to the first context, and exit.
calibrate: print the iterations and the GPU time of one saturating kernel of about --us, and exit.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from driver import HERE, CudaError, Device, Kernel  # type: ignore[import-not-found]
from workload import Asked, Workload, emit, options  # type: ignore[import-not-found]

MASK = (1 << 64) - 1
THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
NODES = 20
THREADS = 256


def timed(device: Device, kernel: Kernel, times: int) -> float:
    """GPU time of one kernel in microseconds: the median of ``times`` launches."""
    first, last = device.event(), device.event()
    took = []
    for _ in range(times):
        device.record(first)
        kernel.launch()
        device.record(last)
        device.wait(last)
        took.append(device.elapsed_us(first, last))
    return float(sorted(took)[times // 2])


def calibrated(device: Device, iterations: ctypes.c_uint64, kernel: Kernel, us: float) -> float:
    """Set ``iterations`` so that the kernel takes about ``us``; its measured time. Right only on an idle GPU."""
    end = time.monotonic() + 0.3
    iterations.value = 20_000
    while time.monotonic() < end:  # let the clocks rise first
        timed(device, kernel, 20)
    for _ in range(3):
        iterations.value = max(1, round(iterations.value * us / timed(device, kernel, 15)))
    return timed(device, kernel, 15)


def burner(device: Device, args: argparse.Namespace, per_sm: int) -> tuple[Kernel, int, float]:
    """The kernel `burn` with ``per_sm`` blocks on each SM (0: as many as fit), its iterations and its GPU time."""
    iterations = ctypes.c_uint64(args.iterations[0])
    function = device.function("burn")
    grid = (args.sms or device.sms) * (per_sm or device.fit(function, THREADS))
    kernel = Kernel(device, function, grid, THREADS, [iterations, device.memory(4)])
    kernel.iterations = iterations
    us = args.us if args.iterations[0] else calibrated(device, iterations, kernel, args.us)
    return kernel, iterations.value, us


def periodic(device: Device, work: Workload, args: argparse.Namespace) -> None:
    """One kernel every period, or in bursts; each launch and synchronize timed."""
    kernel, iterations, us = burner(device, args, 1)
    for _ in range(50):
        kernel.launch()
        device.synchronize()
    asked = Asked()
    work.ready(mode="periodic", sms=device.sms, iterations=iterations, kernel_us=us)
    following = time.monotonic()
    bursts, left = False, 0
    first: list[float] = []
    while work.running:
        if asked.taken():
            bursts, left = not bursts and args.burst > 0, 0
            emit("bursts", t=round(time.monotonic(), 6), on=bursts)
        if bursts and not left:
            work.pause(args.idle_ms / 1000.0)
            left, following = args.burst, time.monotonic()
        begin = time.perf_counter_ns()
        kernel.launch()
        device.synchronize()
        took = time.perf_counter_ns() - begin
        if bursts and left == args.burst:
            first.append(round(took / 1000.0, 1))
            printed = work.done(None, items=1, first_us=first)
        else:
            printed = work.done(took, items=1, first_us=first)
        if printed:
            first = []
        left -= left > 0
        following = max(following + args.period_ms / 1000.0, time.monotonic())
        work.pause(following - time.monotonic())
    work.summary()


def saturate(device: Device, work: Workload, args: argparse.Namespace) -> None:
    """Back to back with a bounded queue; a kernel counts when the GPU has finished it."""
    kernel, iterations, us = burner(device, args, args.per_sm)
    for _ in range(args.warm):
        kernel.launch()
    device.synchronize()
    free = [device.event(blocking=True) for _ in range(max(args.depth))]
    flight: deque[ctypes.c_void_p] = deque()
    storm = device.memory(args.storm_mib << 20) if args.storm_mib else None
    asked, size = Asked(), 0
    work.ready(mode="saturate", sms=device.sms, iterations=iterations, kernel_us=us)
    while work.running:
        if asked.taken():
            device.synchronize()
            size = (size + 1) % len(args.iterations)
            kernel.iterations.value = args.iterations[size]
            emit("size", t=round(time.monotonic(), 6), iterations=args.iterations[size])
        kernel.launch()
        if storm:
            device.call("cuMemsetD8Async", storm, ctypes.c_ubyte(1), ctypes.c_size_t(args.storm_mib << 20), None)
        event = free.pop()
        device.record(event)
        flight.append(event)
        if len(flight) >= args.depth[min(size, len(args.depth) - 1)]:
            device.wait(flight[0])
            free.append(flight.popleft())
            work.done(items=1)
    device.synchronize()
    work.done(count=len(flight), items=len(flight))
    work.summary(iterations=iterations)


def endless(device: Device, work: Workload, args: argparse.Namespace) -> None:
    """Sample the counter without rest when --gap-us is set: `stopped` and `advanced` lines carry the exact times."""
    host, there = device.mapped(128)
    stop, counter = ctypes.c_uint32.from_address(host), ctypes.c_uint64.from_address(host + 64)
    progress = ctypes.c_uint64(there.value + 64)
    kernel = device.kernel("endless", device.sms, THREADS, there, progress, device.memory(4))
    kernel.launch()
    end = time.monotonic() + 20.0
    while not counter.value and time.monotonic() < end:
        time.sleep(0.001)
    if not counter.value:
        raise CudaError("the endless kernel was launched and made no progress within 20 s; is the GPU held by another?")
    work.ready(mode="endless", sms=device.sms)
    gap, held, seen, moved, begun = args.gap_us / 1e6, False, counter.value, time.monotonic(), counter.value
    worst = 0.0  # longest time between two looks: how exact the times are
    last = moved
    while work.running:
        now, value = time.monotonic(), counter.value
        worst, last = max(worst, now - last), now
        if value != seen:
            if held:
                emit("advanced", t=round(now, 6), stopped_s=round(now - moved, 6))
                held = False
            seen, moved = value, now
        elif gap and not held and now - moved > gap:
            emit("stopped", t=round(moved, 6))
            held = True
        if work.tick(progress=value - begun, sample_us=round(worst * 1e6, 1)):
            worst = 0.0
            last = time.monotonic()
        if not gap:
            time.sleep(0.01)
    stop.value = 1
    device.synchronize()
    work.summary(progress=counter.value - begun)


def parked(device: Device, work: Workload, args: argparse.Namespace) -> None:
    """A channel that waits for a semaphore, which nobody releases before the end."""
    host, there = device.mapped(64)
    stream = device.stream()
    device.call("cuStreamWaitValue32_v2", stream, there, ctypes.c_uint32(1), 0)
    event = device.event()
    device.record(event, stream)
    work.ready(mode="parked", sms=device.sms)
    while work.running:
        work.pause(0.05)
    waited = not device.over(event)
    ctypes.c_uint32.from_address(host).value = 1
    device.synchronize()
    work.summary(waited=waited)


def verify(device: Device, work: Workload, args: argparse.Namespace) -> None:
    """The sum of all threads' last numbers has a closed form; each kernel's sum is compared with it."""
    a, c, grid = 6364136223846793005, 1442695040888963407, device.sms * 8
    iterations, seed, total = ctypes.c_uint64(args.iterations[0]), ctypes.c_uint64(0), device.memory(8)
    kernel = device.kernel("affine", grid, THREADS, iterations, ctypes.c_uint64(a), ctypes.c_uint64(c), seed, total)
    if not args.iterations[0]:
        calibrated(device, iterations, kernel, args.us)
    factor, offset, square_a, square_c, bits = 1, 0, a, c, iterations.value
    while bits:  # the map applied `iterations` times is again x -> factor * x + offset
        if bits & 1:
            factor, offset = square_a * factor & MASK, (square_a * offset + square_c) & MASK
        square_a, square_c = square_a * square_a & MASK, (square_a * square_c + square_c) & MASK
        bits >>= 1
    threads, correct, wrong = grid * THREADS, 0, 0
    work.ready(mode="verify", sms=device.sms, iterations=iterations.value)
    while work.running:
        seed.value = (seed.value + 0x9E3779B97F4A7C15) & MASK
        device.call("cuMemsetD8_v2", total, ctypes.c_ubyte(0), ctypes.c_size_t(8))
        kernel.launch()
        found = device.read_u64(total)
        starts = threads * seed.value + threads * (threads - 1) // 2
        good = found == (factor * starts + threads * offset) & MASK
        correct, wrong = correct + good, wrong + (not good)
        work.done(items=1)
    work.summary(correct=correct, wrong=wrong)


def launchloop(device: Device, work: Workload, args: argparse.Namespace) -> None:
    """Launches in batches; the median batch of a window is printed."""
    kernel, loop = device.kernel("empty", 1, 1), None
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "launchloop.so"
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "launchloop.c")]
            subprocess.run(command, check=True)
            loop = ctypes.CDLL(str(library)).launch_loop
    target = ctypes.cast(device.cuda.cuLaunchKernel, ctypes.c_void_p)

    def launch(count: int) -> None:
        if loop is None:
            for _ in range(count):
                kernel.launch()
        elif status := loop(target, kernel.function, count):
            raise CudaError(f"cuLaunchKernel failed with {status} in the launch loop")
        device.synchronize()

    launch(20_000)
    work.ready(mode="launchloop", loop="c" if loop else "python")
    batches(work, launch, args.batch)


def graphloop(device: Device, work: Workload, args: argparse.Namespace) -> None:
    """Launches of one graph in batches; the median batch of a window is printed."""
    stream, kernel = device.stream(), device.kernel("empty", 1, 1)
    kernel.stream = stream
    kernel.launch()
    device.synchronize()
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    device.call("cuStreamBeginCapture_v2", stream, THREAD_LOCAL)
    for _ in range(NODES):
        kernel.launch()
    device.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    device.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))

    def launch(count: int) -> None:
        for _ in range(count):
            device.call("cuGraphLaunch", executable, stream)
        device.synchronize()

    launch(2000)
    work.ready(mode="graphloop", nodes=NODES)
    batches(work, launch, args.batch)


def batches(work: Workload, launch: Callable[[int], None], size: int) -> None:
    """Batches of launches until told to end; each window has the median batch's time per launch."""
    batch: list[float] = []
    while work.running:
        begin = time.perf_counter_ns()
        launch(size)
        batch.append((time.perf_counter_ns() - begin) / size)
        middle = round(sorted(batch)[len(batch) // 2], 1)
        if work.done(count=size, items=size, ns_per_launch=middle):
            batch.clear()
    work.summary()


def main() -> int:
    """The program."""
    parser = options(__doc__ or "")
    modes = {
        "periodic": periodic,
        "saturate": saturate,
        "endless": endless,
        "parked": parked,
        "verify": verify,
        "launchloop": launchloop,
        "graphloop": graphloop,
    }
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("mode", choices=(*modes, "calibrate", "context"))
    parser.add_argument(
        "--us", type=float, default=0.0, help="GPU time of one kernel, microseconds (periodic 50, else 687)"
    )
    parser.add_argument("--period-ms", type=float, default=2.0, help="periodic: one kernel every so often")
    parser.add_argument(
        "--depth", type=int, nargs="+", default=[8], help="saturate: kernels queued at most, one number for each size"
    )
    parser.add_argument(
        "--iterations", type=int, nargs="+", default=[0], help="fixed work per kernel (0: calibrate by --us)"
    )
    parser.add_argument("--burst", type=int, default=0, help="periodic: requests of a burst, off until SIGUSR1")
    parser.add_argument("--idle-ms", type=float, default=100.0, help="periodic: time between two bursts")
    parser.add_argument("--warm", type=int, default=20, help="saturate: kernels before it is ready")
    parser.add_argument("--sms", type=int, default=0, help="blocks for so many SMs (0: as many as it sees)")
    parser.add_argument("--per-sm", type=int, default=0, help="saturate: blocks for each SM (0: as many as fit)")
    parser.add_argument("--storm-mib", type=int, default=0, help="saturate: memory to write after each kernel")
    parser.add_argument("--gap-us", type=float, default=0.0, help="endless: report standstills longer than this")
    parser.add_argument(
        "--batch", type=int, default=500, help="launchloop, graphloop: launches between two synchronizes"
    )
    args = parser.parse_args()
    args.us = args.us or (50.0 if args.mode == "periodic" else 687.0)
    work = Workload(args.seconds, args.window)
    try:
        begin = time.perf_counter_ns()
        device = Device()
        if args.mode == "context":
            emit("context", ms=round((time.perf_counter_ns() - begin) / 1e6, 3))
        elif args.mode == "calibrate":
            _kernel, iterations, us = burner(device, args, 0)
            emit("calibrated", iterations=iterations, kernel_us=round(us, 2), sms=device.sms)
        else:
            modes[args.mode](device, work, args)
    except CudaError as error:
        print(f"kernels.py {args.mode}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
