#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job: so many steps on so much GPU memory. It says `loaded`, waits for a line of JSON, takes its memory, works, says
`result`.

    {"seconds": 10}   as many steps as that gives
    {"steps": 500}    so many

--kind train (a GPT of 200 million parameters; what is left of --hold-mib is a table of which each step changes a part),
decode (one CUDA graph a token), words (the driver API alone: no PyTorch is needed). Equal steps give equal digests.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Final

from workload import Workload, emit, options  # type: ignore[import-not-found]

Step = Callable[[int], bytes]
"""the n-th step; its bits"""
PART: Final = 256 << 20
"""bytes of the table that a step changes"""


def train(hold: int) -> Step:
    """A GPT, and a table of the rest of the memory."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from train import gpt  # type: ignore[import-not-found]

    def one() -> bytes:
        with sdpa_kernel(SDPBackend.MATH):
            return bytes(learn().view(torch.int32).cpu().numpy().tobytes())

    learn = gpt(8)
    one()
    count = max(1, (hold - torch.cuda.memory_reserved()) // PART)
    table = [torch.full((PART // 4,), number, dtype=torch.int32, device="cuda") for number in range(count)]

    def step(number: int) -> bytes:
        part = table[number % count]
        part.add_(number)
        return one() + int(part[:: 1 << 16].sum()).to_bytes(8, "little", signed=True)

    return step


def decode(_hold: int) -> Step:
    """A decoder of 400 million parameters."""
    import torch
    from decode import Decoder  # type: ignore[import-not-found]
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sizes = {"layers": 8, "hidden": 2048, "heads": 16, "ffn": 5632, "vocab": 32000, "batch": 8, "context": 1024}
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        model = Decoder(argparse.Namespace(**sizes))

    def step(_number: int) -> bytes:
        with torch.inference_mode():
            model.step()
            return bytes(model.logits.view(torch.int16).cpu().numpy().tobytes())

    return step


def words(hold: int) -> Step:
    """Memory of which each step changes some words."""
    from driver import Device  # type: ignore[import-not-found]
    from held import IMAGE  # type: ignore[import-not-found]

    device, module, mix = Device(), ctypes.c_void_p(), ctypes.c_void_p()
    device.call("cuModuleLoadData", ctypes.byref(module), IMAGE)
    device.call("cuModuleGetFunction", ctypes.byref(mix), module, b"mix")
    parts = [device.memory(hold // 4) for _ in range(4)]
    found = (ctypes.c_char * 4096)()

    def step(number: int) -> bytes:
        at = ctypes.c_uint64(parts[number % 4].value + number * 40960 % (hold // 4 - 4096))
        values = (at, ctypes.c_uint32(1024), ctypes.c_uint32(5), ctypes.c_uint32(number + 1))
        params = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        device.call("cuLaunchKernel", mix, 1, 1, 1, 1024, 1, 1, 0, None, params, None)
        device.call("cuMemcpyDtoH_v2", found, at, ctypes.c_size_t(4096))
        return bytes(found)

    return step


KINDS: Final = {"train": train, "decode": decode, "words": words}


def load(kind: str) -> None:
    """What takes a job long before it has memory: libraries and the context."""
    if kind == "words":
        from driver import Device

        Device()
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")


def main() -> None:
    """The program."""
    parser = options("A job of steps on GPU memory.")
    parser.add_argument("--kind", choices=tuple(KINDS), default="train")
    parser.add_argument("--hold-mib", type=int, default=4096, help="GPU memory that train and words hold")
    args = parser.parse_args()
    work = Workload(0, args.window)
    load(args.kind)
    emit("loaded", t=round(time.monotonic(), 6))
    order = json.loads(sys.stdin.readline() or "{}")
    begun, sha = time.monotonic(), hashlib.sha256()
    step = KINDS[args.kind](args.hold_mib << 20)
    work.ready(took_s=round(time.monotonic() - begun, 3))
    number, first = 0, time.monotonic()
    while work.running and (
        number < order["steps"] if "steps" in order else time.monotonic() - first < order.get("seconds", 0)
    ):
        began = time.perf_counter_ns()
        sha.update(step(number))
        work.done(time.perf_counter_ns() - began, items=1)
        number += 1
    emit("result", steps=number, seconds=round(time.monotonic() - begun, 6), sha256=sha.hexdigest())
    while work.running:
        time.sleep(0.02)
    work.summary()


if __name__ == "__main__":
    main()
