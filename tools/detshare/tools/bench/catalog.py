# SPDX-License-Identifier: Apache-2.0
"""The commands of the workloads, and the pairs that experiments run side by side."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAIRS", "WORKLOADS", "Pair", "census", "compat", "decode", "encode", "kernels", "operators", "train", "zoo"]

WORKLOADS = Path(__file__).resolve().parent / "workloads"
WINDOW = 0.2  # seconds; short beside a slot, long beside a request


def _script(name: str, *words: object) -> list[str]:
    return [sys.executable, str(WORKLOADS / name), "--window", str(WINDOW), *map(str, words)]


def decode(period_ms: float, *words: object) -> list[str]:
    """Llama-like decode, one token every so often."""
    return _script("decode.py", "--period-ms", period_ms, *words)


def encode(period_ms: float) -> list[str]:
    """BERT-large-like encoder, one request every so often."""
    return _script("encode.py", "--period-ms", period_ms)


def train(model: str, *words: object) -> list[str]:
    """Training of resnet or gpt."""
    return _script("train.py", "--model", model, *words)


def kernels(mode: str, *words: object) -> list[str]:
    """A mode of kernels.py."""
    return _script("kernels.py", mode, *words)


def census(*words: object) -> list[str]:
    """Kernels that tell their SMs and their start."""
    return _script("census.py", *words)


def operators() -> list[str]:
    """Torch operators of fixed inputs, and the digests of their outputs."""
    return _script("operators.py")


def compat(name: str, *words: object) -> list[str]:
    """A program with a fixed output; the native one is built by native.py."""
    if name == "static_sums":
        return [sys.executable, str(WORKLOADS / "zoo" / "native.py"), name]
    return [sys.executable, str(WORKLOADS / "compat" / f"{name}.py"), *map(str, words)]


def zoo(name: str, *words: object) -> list[str]:
    """A program of the zoo; native programs are built by native.py."""
    if name in ("static_cudart", "two_contexts"):
        return [sys.executable, str(WORKLOADS / "zoo" / "native.py"), name]
    return _script(f"zoo/{name}.py", *words)


@dataclass(frozen=True)
class Pair:
    """A latency program (LC) and a background (BE); ``unit`` is what the background counts per second."""

    name: str
    latency: list[str]
    background: list[str]
    unit: str
    longer: float = 1.0
    """how much longer than others its slots are: rare requests need more time for a tail"""
    judged: bool = True
    """whether the issue sets targets for it"""


# Batch 256 keeps the GPU busy whatever the host does; with 64 the training waits for its CPU much of the time.
RESNET = train("resnet", "--batch", 256)
DECODE_10 = Pair("decode 10 ms + resnet", decode(10), RESNET, "images/s")
PAIRS = (
    Pair("decode 100 ms + resnet", decode(100), RESNET, "images/s", longer=2.0),
    DECODE_10,
    Pair("decode 3 ms + resnet", decode(3), RESNET, "images/s"),
    Pair("decode 10 ms + resnet of batch 64", decode(10), train("resnet"), "images/s"),
    Pair("encode 20 ms + gpt", encode(20), train("gpt"), "sequences/s"),
)


def small(periodic_iterations: int, saturate_iterations: int) -> Pair:
    """50-us kernels every 2 ms beside kernels of 687 us; the work per kernel was calibrated on an idle GPU."""
    periodic = kernels("periodic", "--us", 50, "--period-ms", 2, "--iterations", periodic_iterations)
    saturate = kernels("saturate", "--us", 687, "--iterations", saturate_iterations)
    return Pair("kernel 50 us every 2 ms + kernels of 687 us", periodic, saturate, "kernels/s", judged=False)
