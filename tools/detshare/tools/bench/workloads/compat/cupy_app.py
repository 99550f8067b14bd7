#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy: products, element-wise kernels, a kernel of its own, sorting, FFT, and its random numbers."""

from __future__ import annotations

from collections.abc import Iterator

import cupy
import numpy
from case import ROUNDS, case  # type: ignore[import-not-found]


def pieces() -> Iterator[bytes]:
    """The bits of each round."""
    x = cupy.asarray(numpy.random.default_rng(11).standard_normal((512, 512), dtype=numpy.float32))
    twist = cupy.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = a * 0.7f + sinf(b)", "twist")
    cupy.random.seed(13)
    stream = cupy.cuda.Stream(non_blocking=True)
    for turn in range(ROUNDS):
        if turn % 2:
            with stream:
                y = twist(x, cupy.roll(x, turn, axis=1))
                stream.synchronize()
        else:
            y = cupy.tanh(x @ x.T / 512) + cupy.random.standard_normal(x.shape, dtype=cupy.float32) * 0.01
        x = cupy.sort(y, axis=0) if turn % 10 == 0 else y
        spectrum = cupy.abs(cupy.fft.fft(x[0]))
        cupy.cuda.Device().synchronize()
        yield cupy.asnumpy(x).tobytes() + cupy.asnumpy(spectrum).tobytes()


if __name__ == "__main__":
    case(pieces())
