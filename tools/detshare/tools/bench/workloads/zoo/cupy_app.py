#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small CuPy program: matrix products and element-wise kernels until SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path

import cupy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workload import Workload, options  # type: ignore[import-not-found]


def main() -> None:
    """The program."""
    args = options(__doc__ or "").parse_args()
    work = Workload(args.seconds, args.window)
    x = cupy.ones((512, 512), dtype=cupy.float32) / 512
    cupy.cuda.Device().synchronize()
    work.ready(framework="cupy")
    while work.running:
        x = x @ x + 0.001
        cupy.cuda.Device().synchronize()
        work.done(items=1)
        work.pause(0.001)
    work.summary()


if __name__ == "__main__":
    main()
