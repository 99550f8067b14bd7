#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps or tokens one by one, as it is told by the line, and what each of them changed in the GPU's memory.

Lines of standard input, each answered by a line of JSON:
  {"do": "run"}                       a step, and a wait
  {"do": "step", "also": [[A, N]]}    sums of all memory, a step, a wait, and sums again: blocks of 2 MiB that differ.
                                      Memory is that of PyTorch's allocator, and N bytes from A of each of `also`
The sums are made on the GPU by a kernel that reads; the contents never leave it. Models: resnet, gpt (train.py), decode
(decode.py), and plain, which needs no PyTorch: eight allocations, of which a step fills one.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import zlib
from collections.abc import Callable

from workload import emit  # type: ignore[import-not-found]

BLOCK = 1 << 21
MOST_BLOCKS = 1 << 16
PTX = """.version 7.0
.target sm_70
.address_size 64
.visible .entry sums(.param .u64 sums_src, .param .u64 sums_words, .param .u64 sums_out)
{
	.reg .pred %p;
	.reg .b32 %r<4>;
	.reg .b64 %d<16>;
	ld.param.u64 %d1, [sums_src];
	ld.param.u64 %d2, [sums_words];
	ld.param.u64 %d3, [sums_out];
	cvta.to.global.u64 %d1, %d1;
	cvta.to.global.u64 %d3, %d3;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %d4, %r1, 262144;
	cvt.u64.u32 %d5, %r2;
	add.s64 %d5, %d4, %d5;
	add.s64 %d6, %d4, 262144;
	min.u64 %d6, %d6, %d2;
	mov.u64 %d7, 0;
loop:
	setp.ge.u64 %p, %d5, %d6;
	@%p bra done;
	shl.b64 %d8, %d5, 3;
	add.s64 %d8, %d1, %d8;
	ld.global.u64 %d9, [%d8];
	mul.lo.u64 %d10, %d5, 0x9E3779B97F4A7C15;
	add.s64 %d9, %d9, %d10;
	mul.lo.u64 %d9, %d9, 0xBF58476D1CE4E5B9;
	shr.u64 %d10, %d9, 29;
	xor.b64 %d9, %d9, %d10;
	mul.lo.u64 %d9, %d9, 0x94D049BB133111EB;
	add.s64 %d7, %d7, %d9;
	add.s64 %d5, %d5, 256;
	bra loop;
done:
	mul.wide.u32 %d11, %r1, 8;
	add.s64 %d11, %d3, %d11;
	red.global.add.u64 [%d11], %d7;
	ret;
}
"""

Range = tuple[int, int]


class Sums:
    """Sums of memory by blocks, made on the GPU in the current context, or (`on_host`) of copies on the host."""

    def __init__(self, on_host: bool) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.on_host = on_host
        self.out = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(self.out), ctypes.c_size_t(8 * MOST_BLOCKS))
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.image = PTX.encode()  # kept: who reads it from outside comes a moment later
        self.call("cuModuleLoadData", ctypes.byref(module), self.image)
        self.call("cuModuleGetFunction", ctypes.byref(self.function), module, b"sums")

    def call(self, name: str, *arguments: object) -> None:
        """A call of the driver that must succeed."""
        status = getattr(self.cuda, name)(*arguments)
        if status:
            raise SystemExit(f"steps.py: {name} failed with {status}")

    def alive(self, address: int, size: int) -> bool:
        """Whether the driver still has that memory."""
        base, found = ctypes.c_uint64(), ctypes.c_size_t()
        status = self.cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(found), ctypes.c_uint64(address))
        return status == 0 and base.value <= address and address + size <= base.value + found.value

    def of(self, address: int, size: int) -> tuple[int, ...]:
        """One number for each block."""
        count = min(MOST_BLOCKS, -(-size // BLOCK))
        if self.on_host:
            held = ctypes.create_string_buffer(size)
            self.call("cuMemcpyDtoH_v2", held, ctypes.c_uint64(address), ctypes.c_size_t(size))
            return tuple(zlib.crc32(held.raw[at : at + BLOCK]) for at in range(0, count * BLOCK, BLOCK))
        self.call("cuMemsetD8_v2", self.out, ctypes.c_ubyte(0), ctypes.c_size_t(8 * count))
        words = ctypes.c_uint64(min(size // 8, count * BLOCK // 8))
        held_arguments = (ctypes.c_uint64(address), words, ctypes.c_uint64(self.out.value))
        block = (ctypes.c_void_p * 3)(*[ctypes.addressof(each) for each in held_arguments])
        self.call("cuLaunchKernel", self.function, count, 1, 1, 256, 1, 1, 0, None, block, None)
        found = (ctypes.c_uint64 * count)()
        self.call("cuMemcpyDtoH_v2", found, self.out, ctypes.c_size_t(8 * count))
        return tuple(found)

    def check(self) -> None:
        """That one changed byte is seen, and in its block only. SystemExit where it is not."""
        memory = ctypes.c_uint64()
        size = 3 * BLOCK + 64
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), ctypes.c_size_t(size))
        before = self.of(memory.value, size)
        again = self.of(memory.value, size)
        self.call("cuMemsetD8_v2", ctypes.c_uint64(memory.value + BLOCK + 12345), ctypes.c_ubyte(8), ctypes.c_size_t(1))
        after = self.of(memory.value, size)
        self.call("cuMemFree_v2", memory)
        if before != again or [a != b for a, b in zip(before, after, strict=True)] != [False, True, False, False]:
            raise SystemExit(f"steps.py: the sums are wrong: {before} {again} {after}")


class Plain:
    """Eight allocations; a step fills one."""

    def __init__(self) -> None:
        from driver import Device  # type: ignore[import-not-found]

        self.device = Device()
        self.memory = [self.device.memory(1 << 20 if number else 3 << 20) for number in range(8)]
        self.number = 0

    def step(self) -> None:
        self.number += 1
        target = self.memory[self.number % 8]
        self.device.call("cuMemsetD8_v2", target, ctypes.c_ubyte(self.number & 255), ctypes.c_size_t(4096))

    def segments(self) -> list[Range]:
        return [(each.value, 3 << 20 if number == 0 else 1 << 20) for number, each in enumerate(self.memory)]


def of_torch(model: str, batch: int, layers: int) -> Callable[[], None]:
    """One step of that model, which ends on the GPU later."""
    import torch

    if model == "decode":
        import decode  # type: ignore[import-not-found]

        sizes = {"hidden": 2048, "heads": 16, "ffn": 5632, "vocab": 32000, "batch": 8, "context": 1024}
        with torch.inference_mode():
            decoder = decode.Decoder(argparse.Namespace(layers=layers, **sizes))

        def token() -> None:
            with torch.inference_mode():
                decoder.step()

        return token
    import train  # type: ignore[import-not-found]

    torch.backends.cudnn.benchmark = False
    torch.manual_seed(0)
    step: Callable[[], None] = train.resnet(batch or 64) if model == "resnet" else train.gpt(batch or 8)
    return step


def segments_of_torch() -> list[Range]:
    """What PyTorch's allocator holds of the driver."""
    import torch

    return [(int(each["address"]), int(each["total_size"])) for each in torch.cuda.memory_snapshot()]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("resnet", "gpt", "decode", "plain"), default="resnet")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--warm", type=int, default=12)
    parser.add_argument("--on-host", action="store_true", help="sums of copies on the host, where no kernel runs")
    args = parser.parse_args()
    step: Callable[[], None]
    segments: Callable[[], list[Range]]
    if args.model == "plain":
        plain = Plain()
        step, segments, wait = plain.step, plain.segments, plain.device.synchronize
    else:
        import torch

        step = of_torch(args.model, args.batch, args.layers)
        segments, wait = segments_of_torch, torch.cuda.synchronize
    for _ in range(args.warm):
        step()
    wait()
    sums = Sums(args.on_host)
    sums.check()
    wait()
    emit("ready", model=args.model, segments=len(segments()), bytes=sum(size for _, size in segments()))
    for text in sys.stdin:
        command = json.loads(text)
        if command["do"] == "run":
            step()
            wait()
            emit("ran")
            continue
        mine = segments()
        also = [(int(a), int(n)) for a, n in command.get("also", ()) if a != sums.out.value and sums.alive(a, n)]
        ranges = list(dict.fromkeys([*mine, *also]))
        before = {each: sums.of(*each) for each in ranges}
        wait()
        step()
        wait()
        after = {each: sums.of(*each) for each in ranges if sums.alive(*each)}
        wait()
        changed = [
            [address, size, sum(a != b for a, b in zip(before[address, size], now, strict=True)), len(now)]
            for (address, size), now in after.items()
            if before[address, size] != now
        ]
        fresh = [list(each) for each in segments() if each not in before]
        emit("stepped", changed=changed, compared=len(after), gone=len(before) - len(after), fresh=fresh, segments=mine)


if __name__ == "__main__":
    main()
