#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small Triton program: one element-wise kernel until SIGTERM, its result checked."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workload import Workload, options  # type: ignore[import-not-found]


@triton.jit
def add_one(x, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """x[i] += 1 for i below ``size``."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < size) + 1, mask=at < size)


def main() -> None:
    """The program."""
    args = options(__doc__ or "").parse_args()
    work = Workload(args.seconds, args.window)
    x = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    add_one[(x.numel() // 1024,)](x, x.numel(), BLOCK=1024)
    torch.cuda.synchronize()
    work.ready(framework="triton")
    launched = 1
    while work.running:
        add_one[(x.numel() // 1024,)](x, x.numel(), BLOCK=1024)
        torch.cuda.synchronize()
        launched += 1
        work.done(items=1)
        work.pause(0.001)
    work.summary(correct=bool((x == launched).all()))


if __name__ == "__main__":
    main()
