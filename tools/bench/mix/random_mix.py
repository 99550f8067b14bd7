# SPDX-License-Identifier: Apache-2.0
"""mix-random: everything that may happen to programs and to the daemon, at random, for minutes."""

from __future__ import annotations

import sys

from detshare.tools.bench.catalog import WORKLOADS

__all__ = ["KINDS", "again"]

KINDS = ("eager", "graphs", "threads", "cupy", "jax", "triton", "sums", "more-sums")


def again(kind: str) -> list[str]:
    """The command of a program that computes the same thing again and again."""
    return [sys.executable, str(WORKLOADS / "mix" / "again.py"), "--kind", kind]
