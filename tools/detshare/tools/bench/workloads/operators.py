#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Torch operators of inputs made on the CPU, again and again; a `cycle` line has the SHA-1 of each one's bits."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as functional
from workload import Workload, emit, options  # type: ignore[import-not-found]

Operator = Callable[[], torch.Tensor]
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
NAMES = {BF16: "bf16", FP16: "fp16", FP32: "fp32"}
PRODUCTS = (
    (2048, 2048, 2048),
    (1024, 1024, 8192),
    (8, 4096, 4096),
    (1, 8192, 8192),
    (128, 4096, 11008),
    (333, 777, 1555),
    (64, 16384, 2048),
)
"""rows, columns and inner dimension"""


class Numbers:
    """Tensors cut out of one bank of numbers made on the CPU: quick, and the same on every run and every GPU."""

    def __init__(self) -> None:
        self._bank = torch.randn(1 << 22, generator=torch.Generator().manual_seed(20261120))
        self._taken = 0

    def take(self, *shape: int, dtype: torch.dtype = FP32, scale: float = 1.0) -> torch.Tensor:
        """A tensor on the GPU, another one on each call."""
        need = 1
        for size in shape:
            need *= size
        self._taken += 1
        moved = self._bank.roll(self._taken * 1_000_003)
        flat = moved.repeat(-(-need // moved.numel()))[:need]
        return (flat.view(shape) * scale).to(dtype).cuda()


def products(numbers: Numbers) -> Iterator[tuple[str, Operator]]:
    """Matrix products of three types, and a language model's head."""
    for dtype in (BF16, FP16, FP32):
        for rows, columns, inner in PRODUCTS:
            a = numbers.take(rows, inner, dtype=dtype)
            b = numbers.take(inner, columns, dtype=dtype, scale=inner**-0.5)
            yield f"{NAMES[dtype]} {rows}x{columns}x{inner}", functools.partial(torch.matmul, a, b)
    x, head = numbers.take(8, 2048, dtype=BF16), numbers.take(32000, 2048, dtype=BF16, scale=2048**-0.5)
    yield "head and softmax", lambda: functional.linear(x, head).softmax(dim=-1)


def attention(numbers: Numbers) -> Iterator[tuple[str, Operator]]:
    """Scaled dot products: causal, and one query over many keys."""
    for dtype, queries, keys in ((BF16, 1024, 1024), (FP16, 1024, 1024), (BF16, 1, 2048), (FP32, 256, 256)):
        q = numbers.take(4, 16, queries, 64, dtype=dtype)
        k, v = (numbers.take(4, 16, keys, 64, dtype=dtype) for _ in range(2))
        causal = queries > 1

        def attend(
            q: torch.Tensor = q, k: torch.Tensor = k, v: torch.Tensor = v, causal: bool = causal
        ) -> torch.Tensor:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        yield f"attention {NAMES[dtype]} {queries} over {keys}", attend


def convolutions(numbers: Numbers) -> Iterator[tuple[str, Operator]]:
    """Convolutions as in a ResNet."""
    shapes = ((BF16, 64, 64, 3, 1), (FP16, 128, 128, 3, 1), (FP32, 64, 64, 3, 1), (BF16, 256, 512, 1, 2))
    for dtype, channels, filters, size, stride in shapes:
        x = numbers.take(8, channels, 56, 56, dtype=dtype).to(memory_format=torch.channels_last)
        w = numbers.take(filters, channels, size, size, dtype=dtype, scale=(channels * size * size) ** -0.5)
        w = w.to(memory_format=torch.channels_last)

        def convolve(x: torch.Tensor = x, w: torch.Tensor = w, size: int = size, stride: int = stride) -> torch.Tensor:
            return functional.conv2d(x, w, stride=stride, padding=size // 2)

        yield f"convolution {NAMES[dtype]} {channels} to {filters}, {size}x{size}", convolve


def others(numbers: Numbers) -> Iterator[tuple[str, Operator]]:
    """Reductions, norms, and what sorts."""
    x = numbers.take(2048, 4096)
    weight = numbers.take(4096)
    yield "sum of all", lambda: x.sum()
    yield "sum of rows", lambda: x.sum(dim=1)
    yield "layer norm", lambda: functional.layer_norm(x, (4096,), weight)
    yield "rms norm", lambda: functional.rms_norm(x, (4096,), weight)
    yield "softmax", lambda: x.softmax(dim=-1)
    yield "cumulative sum", lambda: x.cumsum(dim=1)
    yield "sort", lambda: x[:256].sort(dim=1).values
    yield "mean of columns", lambda: x.mean(dim=0)


def digest(output: torch.Tensor) -> str:
    """SHA-1 of the bits."""
    return hashlib.sha1(output.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()).hexdigest()


def main() -> None:
    """The program."""
    args = options(__doc__ or "").parse_args()
    work = Workload(args.seconds, args.window)
    torch.backends.cuda.matmul.allow_tf32 = False
    numbers = Numbers()
    with torch.inference_mode():
        makers = (products, attention, convolutions, others)
        all_of_them = {name: run for make in makers for name, run in make(numbers)}
        for run in all_of_them.values():
            run()
        torch.cuda.synchronize()
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        work.ready(operators=len(all_of_them), sms=sms)
        while work.running:
            begun = round(time.monotonic(), 6)
            digests = {}
            for name, run in all_of_them.items():
                digests[name] = digest(run())
                work.done(items=1)
                if not work.running:
                    break
            if len(digests) == len(all_of_them):
                emit("cycle", t=begun, end=round(time.monotonic(), 6), digests=digests)
    work.summary(sms=sms)


if __name__ == "__main__":
    main()
