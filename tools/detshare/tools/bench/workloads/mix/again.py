#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small program that computes the same thing again and again, and says each time what it got.

A ``digest`` line has the SHA-256 of all bytes of one time; ``beat`` lines say that it goes on. Kinds: eager, graphs,
threads, cupy, jax, triton (those of the compatibility experiment), sums and more-sums (integer kernels of the driver
API, short and of some 10 ms).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from orders import WINDOW, Orders, beside, emit  # type: ignore[import-not-found]

PIECES = 150
Pieces = Callable[[], Iterable[bytes]]


def of_torch(kind: str) -> Pieces:
    """Training steps, a replayed graph, or four threads with a stream each."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    app = beside("torch_app", "compat")
    torch.use_deterministic_algorithms(True)
    kinds: dict[str, Pieces] = {"eager": lambda: app.training(False), "graphs": app.graphs, "threads": app.threads}
    return kinds[kind]


def sums(iterations: int) -> Pieces:
    """Integer kernels; each one's seed is the sum before."""
    app = beside("driver_app", "compat")
    device = app.Device()
    next(app.sums(device, 1))  # compiles, which needs NVRTC or nvcc

    def pieces() -> Iterator[bytes]:
        return islice(app.sums(device, iterations), PIECES)

    return pieces


def products(iterations: int) -> Pieces:
    """The same by PyTorch's integers, where no kernel can be compiled."""
    import torch

    def pieces() -> Iterator[bytes]:
        x = torch.arange(1 << 20, device="cuda")
        for _ in range(PIECES):
            for _ in range(iterations):
                x = x * 6364136223846793005 + 1442695040888963407
            yield int(x.sum()).to_bytes(8, "little", signed=True)

    return pieces


def integers(iterations: int, steps: int) -> tuple[Pieces, str]:
    """`sums`, or `products` with the reason why not `sums`."""
    try:
        return sums(iterations), ""
    except Exception as error:  # noqa: BLE001  (no compiler, or one that does not fit)
        return products(steps), f"{type(error).__name__}: {str(error)[:200]}"


KINDS: dict[str, Callable[[], tuple[Pieces, str]]] = {
    "eager": lambda: (of_torch("eager"), ""),
    "graphs": lambda: (of_torch("graphs"), ""),
    "threads": lambda: (of_torch("threads"), ""),
    "cupy": lambda: (beside("cupy_app", "compat").pieces, ""),
    "jax": lambda: (beside("jax_app", "compat").pieces, ""),
    "triton": lambda: (beside("triton_app", "compat").pieces, ""),
    "sums": lambda: integers(2000, 4),
    "more-sums": lambda: integers(400_000, 400),
}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    args = parser.parse_args()
    orders = Orders()
    pieces, instead = KINDS[args.kind]()
    times = count = 0
    said = 0.0
    while not orders.ended:
        sha = hashlib.sha256()
        for piece in pieces():
            sha.update(piece)
            count += 1
            now = time.monotonic()
            if count == 1:
                emit("ready", pid=os.getpid(), t=round(now, 6), what=args.kind, instead=instead)
            if now - said >= WINDOW:
                emit("beat", t=round(now, 6), count=count)
                said = now
            if orders.ended:
                break
        else:
            times += 1
            emit("digest", t=round(time.monotonic(), 6), sha256=sha.hexdigest())
    emit("summary", t=round(time.monotonic(), 6), count=count, times=times)


if __name__ == "__main__":
    main()
