# SPDX-License-Identifier: Apache-2.0
"""The server of docs/use/models with memory in place of a model: `fake_model_server.py MIB SEED`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs/use/models"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/detshare/tools/bench/workloads"))
from driver import Device  # type: ignore[import-not-found]
from held import Held  # type: ignore[import-not-found]
from server import serve  # type: ignore[import-not-found]


class Memory:
    """Its tokens are words of its memory."""

    def __init__(self, mib: int, seed: int) -> None:
        self.device = Device()
        self.size, self.seed = mib << 20, seed
        self.held = Held(self.device, self.size, 4 << 20, seed)
        self.there = True

    def generate(self, seed: int, count: int) -> Iterator[tuple[int, float]]:
        if not self.there:
            self.held = Held(self.device, self.size, 4 << 20, self.seed)
            self.there = True
        self.held.launch(0, 1, 0)
        word = ctypes.c_uint32()
        for number in range(count):
            at = self.held.at((seed * 7919 + number * 104729) * 4 % self.size)
            self.device.call("cuMemcpyDtoH_v2", ctypes.byref(word), at, ctypes.c_size_t(4))
            yield word.value, 0.5

    def unload(self) -> None:
        self.device.call("cuMemFree_v2", self.held.at(0))
        self.there = False


serve(Memory(int(sys.argv[1]), int(sys.argv[2])), 0)
