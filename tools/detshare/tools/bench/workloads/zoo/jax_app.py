#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small JAX program: matrix products until SIGTERM."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it shares the GPU with other programs
import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workload import Workload, options  # type: ignore[import-not-found]


def main() -> None:
    """The program."""
    args = options(__doc__ or "").parse_args()
    work = Workload(args.seconds, args.window)
    step = jax.jit(lambda x: jnp.tanh(x @ x))
    x = step(jnp.ones((512, 512))).block_until_ready()
    work.ready(framework="jax", platform=x.devices().pop().platform)
    while work.running:
        x = step(x).block_until_ready()
        work.done(items=1)
        work.pause(0.001)
    work.summary()


if __name__ == "__main__":
    main()
