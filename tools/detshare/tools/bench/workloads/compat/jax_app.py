#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX: a compiled training step and its random numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it shares the GPU with other programs
# What is chosen by timing differs from run to run, with the runtime and without.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")
import jax
import jax.numpy as jnp
import numpy
from case import ROUNDS, case  # type: ignore[import-not-found]


def pieces() -> Iterator[bytes]:
    """The weights after each step."""
    keys = jax.random.split(jax.random.key(17), 3)
    x, w = jax.random.normal(keys[0], (256, 512)), jax.random.normal(keys[1], (512, 512)) / 32

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ w) @ w.T - x) ** 2)

    step = jax.jit(lambda w, x: w - 0.1 * jax.grad(loss)(w, x))
    for _ in range(ROUNDS):
        w = step(w, x)
        yield numpy.asarray(w).tobytes()


if __name__ == "__main__":
    case(pieces())
