#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton: a product of matrices and a row-wise softmax, fed forward."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from case import ROUNDS, case  # type: ignore[import-not-found]

SIZE, TILE = 512, 64


@triton.jit
def multiply(a, b, c, SIZE: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """c = a @ b, square, row-major."""
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for at in range(0, SIZE, TILE):
        inner = at + tl.arange(0, TILE)
        left = tl.load(a + rows[:, None] * SIZE + inner[None, :])
        right = tl.load(b + inner[:, None] * SIZE + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * SIZE + columns[None, :], total)


@triton.jit
def soften(x, y, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row-wise softmax."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    row = tl.load(x + at)
    grown = tl.exp(row - tl.max(row, axis=0))
    tl.store(y + at, grown / tl.sum(grown, axis=0))


def pieces() -> Iterator[bytes]:
    """Each product's bits."""
    x = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(5)).cuda()
    y, z = torch.empty_like(x), torch.empty_like(x)
    for _ in range(ROUNDS):
        multiply[(SIZE // TILE, SIZE // TILE)](x, x, y, SIZE=SIZE, TILE=TILE)
        soften[(SIZE,)](y, z, SIZE=SIZE)
        x, z = z * 16, x
        yield x.cpu().numpy().tobytes()


if __name__ == "__main__":
    case(pieces())
