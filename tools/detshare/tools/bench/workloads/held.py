# SPDX-License-Identifier: Apache-2.0
"""A program that holds GPU memory and does what it is told, by lines of JSON on standard input; each is answered.

    {"do": "write", "count": 100, "seed": 1}   writes words into so many grains (2 MiB), by copies, memsets, kernels
    {"do": "launch"}                           a kernel that changes nothing; answers with its time
    {"do": "same"}                             compares all of it with what was written
    {"do": "left"}                             how many bytes of the GPU are free
    {"do": "bandwidth"}                        of copies within the GPU, read and written bytes together
    {"do": "plain"}                            the same bytes to pinned host memory and back, by hand
    {"do": "managed"}                          the same as managed memory: prefetched to the host and back

Content: one random block of `--chunk-mib` over and over, and the words that were written since.
"""

from __future__ import annotations

import ctypes
import json
import random
import signal
import sys
import time
from typing import Any, Final

from driver import CudaError, Device  # type: ignore[import-not-found]
from workload import Workload, emit, options  # type: ignore[import-not-found]

GRAIN: Final = 2 << 20
MIB: Final = 1 << 20
MANAGED_GLOBAL: Final = 1
CPU: Final = -1
LIBC: Final = ctypes.CDLL(None)
MOST_PINNED: Final = 8 << 30
# for a GPU; the stand-in for libcuda runs its own code for this name
IMAGE: Final = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 p_to, .param .u32 p_count, .param .u32 p_a, .param .u32 p_b)
{
	.reg .pred %p;
	.reg .b32 %r<8>;
	.reg .b64 %d<3>;
	ld.param.u64 %d0, [p_to];
	ld.param.u32 %r0, [p_count];
	ld.param.u32 %r1, [p_a];
	ld.param.u32 %r2, [p_b];
	mov.u32 %r3, %tid.x;
	setp.ge.u32 %p, %r3, %r0;
	@%p bra OUT;
	mul.wide.u32 %d1, %r3, 4;
	add.u64 %d2, %d0, %d1;
	ld.global.u32 %r4, [%d2];
	mad.lo.u32 %r4, %r4, %r1, %r2;
	st.global.u32 [%d2], %r4;
OUT:
	ret;
}
"""


class Held:
    """The memory, and what is in it."""

    def __init__(self, device: Device, size: int, chunk: int, seed: int) -> None:
        self.device, self.size, self.chunk = device, size, min(chunk, size)
        self.stream = device.stream()
        self.module, self.mix = ctypes.c_void_p(), ctypes.c_void_p()
        device.call("cuModuleLoadData", ctypes.byref(self.module), IMAGE)
        device.call("cuModuleGetFunction", ctypes.byref(self.mix), self.module, b"mix")
        self.base = bytearray(random.Random(seed).randbytes(self.chunk))
        self.words: dict[int, int] = {}
        """by offset, what was written since"""
        self.address = self.allocated("cuMemAlloc_v2", size)
        self.pinned = ctypes.c_void_p()
        device.call("cuMemHostAlloc", ctypes.byref(self.pinned), ctypes.c_size_t(self.chunk), 0)
        ctypes.memmove(self.pinned, (ctypes.c_char * self.chunk).from_buffer(self.base), self.chunk)
        for offset in range(0, size, self.chunk):
            self.device.call("cuMemcpyHtoD_v2", self.at(offset), self.pinned, self.part(offset))

    def allocated(self, name: str, size: int, *more: object) -> int:
        address = ctypes.c_uint64()
        self.device.call(name, ctypes.byref(address), ctypes.c_size_t(size), *more)
        return address.value

    def at(self, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64(self.address + offset)

    def part(self, offset: int) -> ctypes.c_size_t:
        return ctypes.c_size_t(min(self.chunk, self.size - offset))

    def word(self, offset: int) -> int:
        there = offset % self.chunk
        return self.words.get(offset, int.from_bytes(self.base[there : there + 4], "little"))

    def launch(self, offset: int, a: int, b: int) -> None:
        values = (self.at(offset), ctypes.c_uint32(1), ctypes.c_uint32(a), ctypes.c_uint32(b))
        params = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        self.device.call("cuLaunchKernel", self.mix, 1, 1, 1, 32, 1, 1, 0, self.stream, params, None)

    def write(self, count: int, seed: int) -> None:
        """A word in each of so many grains."""
        dice = random.Random(seed)
        for grain in dice.sample(range(self.size // GRAIN), min(count, self.size // GRAIN)):
            offset, value = grain * GRAIN + 4 * dice.randrange(GRAIN // 4), dice.getrandbits(32)
            match dice.randrange(4):
                case 0:
                    word = ctypes.c_uint32(value)
                    self.device.call("cuMemcpyHtoD_v2", self.at(offset), ctypes.byref(word), ctypes.c_size_t(4))
                case 1:
                    self.device.call(
                        "cuMemsetD32Async", self.at(offset), ctypes.c_uint32(value), ctypes.c_size_t(1), self.stream
                    )
                case 2:
                    source = 4 * dice.randrange(self.size // 4)
                    self.device.call(
                        "cuMemcpyDtoDAsync_v2", self.at(offset), self.at(source), ctypes.c_size_t(4), self.stream
                    )
                    value = self.word(source)
                case _:
                    self.launch(offset, 2 * value + 1 & 0xFFFFFFFF, 7)
                    value = self.word(offset) * (2 * value + 1) + 7 & 0xFFFFFFFF
            self.words[offset] = value
            self.device.call("cuStreamSynchronize", self.stream)

    def same(self) -> bool:
        """Whether each byte is what was written."""
        for offset in range(0, self.size, self.chunk):
            size = self.part(offset)
            self.device.call("cuMemcpyDtoH_v2", self.pinned, self.at(offset), size)
            written = {n: word for n, word in self.words.items() if offset <= n < offset + size.value}
            before = {n: bytes(self.base[n - offset : n - offset + 4]) for n in written}
            for n, word in written.items():
                self.base[n - offset : n - offset + 4] = word.to_bytes(4, "little")
            base = (ctypes.c_char * self.chunk).from_buffer(self.base)
            equal = LIBC.memcmp(self.pinned, base, size) == 0
            for n, old in before.items():
                self.base[n - offset : n - offset + 4] = old
            if not equal:
                return False
        return True

    def timed(self, name: str, *arguments: object) -> float:
        """Seconds of one asynchronous call of the driver, to its end."""
        began = time.perf_counter()
        self.device.call(name, *arguments, self.stream)
        self.device.call("cuStreamSynchronize", self.stream)
        return time.perf_counter() - began

    def left(self) -> tuple[int, int]:
        """Bytes of the GPU that are free, and all."""
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.device.call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(total))
        return left.value, total.value

    def bandwidth(self) -> dict[str, float]:
        """Of copies from one half to the other, which change what is there: for the last order."""
        half = self.size // 2
        times = [self.timed("cuMemcpyDtoDAsync_v2", self.at(half), self.at(0), ctypes.c_size_t(half)) for _ in range(5)]
        return {"bytes_per_s": 2 * half / min(times)}

    def plain(self) -> dict[str, float]:
        """Seconds for all of it, from what a pinned buffer of 8 GiB at most gives."""
        size = min(self.size, MOST_PINNED)
        buffer = ctypes.c_void_p()
        self.device.call("cuMemHostAlloc", ctypes.byref(buffer), ctypes.c_size_t(size), 0)
        away = min(self.timed("cuMemcpyDtoHAsync_v2", buffer, self.at(0), ctypes.c_size_t(size)) for _ in range(3))
        back = min(self.timed("cuMemcpyHtoDAsync_v2", self.at(0), buffer, ctypes.c_size_t(size)) for _ in range(3))
        self.device.call("cuMemFreeHost", buffer)
        return {"away_s": away * self.size / size, "back_s": back * self.size / size}

    def managed(self) -> dict[str, float]:
        """Seconds of prefetches of managed memory of that size, in place of what there is."""
        self.device.call("cuMemFree_v2", self.at(0))
        address = ctypes.c_uint64(self.allocated("cuMemAllocManaged", self.size, ctypes.c_uint(MANAGED_GLOBAL)))
        length = ctypes.c_size_t(self.size)
        self.timed("cuMemPrefetchAsync", address, length, self.device.device)
        self.timed("cuMemsetD8Async", address, ctypes.c_ubyte(7), length)
        self.timed("cuMemPrefetchAsync", address, length, CPU)  # the host's pages are there from now on
        self.timed("cuMemPrefetchAsync", address, length, self.device.device)
        away = self.timed("cuMemPrefetchAsync", address, length, CPU)
        back = self.timed("cuMemPrefetchAsync", address, length, self.device.device)
        return {"away_s": away, "back_s": back}


def answer(held: Held, order: dict[str, Any]) -> None:
    """Do it, and say what came of it."""
    match order["do"]:
        case "write":
            held.write(order["count"], order["seed"])
            emit("written", number=order["number"])
        case "launch":
            began = time.perf_counter()
            held.launch(0, 1, 0)
            held.device.call("cuStreamSynchronize", held.stream)
            emit("launched", number=order["number"], seconds=time.perf_counter() - began)
        case "same":
            emit("compared", number=order["number"], same=held.same())
        case "left":
            emit("left", number=order["number"], bytes=held.left()[0])
        case "bandwidth" | "plain" | "managed":
            measure = {"bandwidth": held.bandwidth, "plain": held.plain, "managed": held.managed}[order["do"]]
            try:
                emit("measured", number=order["number"], **measure())
            except CudaError as error:
                emit("measured", number=order["number"], error=str(error))


def main() -> None:
    """Hold memory, and do what is told until SIGTERM."""
    parser = options("A program that holds GPU memory.")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--chunk-mib", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    work = Workload(args.seconds, args.window)
    held = Held(Device(), args.mib * MIB, args.chunk_mib * MIB, args.seed)
    # it ends between two orders, of which the next may never come
    signal.signal(signal.SIGTERM, _end)
    left, total = held.left()
    work.ready(mib=args.mib, left=left, total=total)
    try:
        for line in sys.stdin:
            answer(held, json.loads(line))
    finally:
        work.summary()


def _end(_number: int, _frame: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
