# SPDX-License-Identifier: Apache-2.0
"""The recorded ioctls of tests/data/traces (see the README there)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "data" / "traces"
RUNTIME: Final = "h100-580-runtime-greenctx"
MPS_CLIENT: Final = "h100-580-mps-client"
CTL: Final = "/dev/nvidiactl"
UVM: Final = "/dev/nvidia-uvm"


@dataclass(frozen=True)
class Ioctl:
    """One call: `request` is the whole number; blocks before and after, nested parameters if there were any."""

    seq: int
    fd: int
    path: str
    request: int
    before: bytes
    after: bytes
    params_before: bytes
    params_after: bytes

    @property
    def nr(self) -> int:
        """_IOC_NR."""
        return self.request & 0xFF

    @property
    def size(self) -> int:
        """_IOC_SIZE; 0 for UVM."""
        return self.request >> 16 & 0x3FFF


@cache
def ioctls(name: str) -> tuple[Ioctl, ...]:
    """A recording's ioctls, in order; mmaps are left out."""
    return tuple(_read(FOLDER / f"{name}.jsonl.gz"))


def _read(path: Path) -> Iterator[Ioctl]:
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if "nr" in row:
                hexes = (row.get(key, "") for key in ("in", "out", "pin", "pout"))
                blocks = [bytes.fromhex(text) for text in hexes]
                yield Ioctl(row["seq"], row["fd"], row["path"], row["req"], *blocks)
