# SPDX-License-Identifier: Apache-2.0
"""A living program's USERD as another process finds it: through /proc/PID/mem, without the driver's help.

A channel's USERD is 512 bytes of memory that the program allocated and mapped; GPGet lies at 0x88 and GPPut at 0x8c
(Nvc86fControl, clc86f.h). What looks like one is a slot in which GPPut grows as the program submits.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GET", "SLOT", "Mapping", "Slot", "doorbells", "mappings", "moving", "read"]

SLOT = 0x200
GET = 0x88
_MOST = 4 << 20  # bytes of a mapping that are looked at
_ENTRIES = 1 << 16  # more GPFIFO entries has no channel of CUDA
_DOORBELL = 0x10000  # bytes of a usermode object


@dataclass(frozen=True)
class Mapping:
    """A mapping of one of the driver's files, or of memory that anybody shares with it."""

    start: int
    size: int
    path: str


@dataclass(frozen=True)
class Slot:
    """What may be a USERD."""

    address: int
    path: str
    get: int
    put: int


def mappings(pid: int) -> list[Mapping]:
    """Shared mappings of the driver's files, those that the program itself may not read among them."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/dev/nvidia"):
            start, end = (int(word, 16) for word in fields[0].split("-"))
            found.append(Mapping(start, end - start, fields[5]))
    return found


def doorbells(pid: int) -> list[Mapping]:
    """Those that have the size of a usermode object, of a device file."""
    return [each for each in mappings(pid) if each.size == _DOORBELL and each.path[-1].isdigit()]


def read(pid: int, mapping: Mapping, most: int = _MOST) -> bytes | None:
    """Its beginning; None where the kernel refuses."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(mapping.start)
            return memory.read(min(mapping.size, most))
    except OSError:
        return None


def _slots(pid: int, mapping: Mapping) -> dict[int, Slot]:
    data = read(pid, mapping) or b""
    found = {}
    for at in range(0, len(data) - SLOT + 1, SLOT):
        get, put = struct.unpack_from("<II", data, at + GET)
        if put < _ENTRIES and get < _ENTRIES:
            found[at] = Slot(mapping.start + at, mapping.path, get, put)
    return found


def moving(pid: int, seconds: float) -> list[tuple[Slot, Slot]]:
    """Slots whose GPPut changed within so long, before and after."""
    known = [each for each in mappings(pid) if each.size != _DOORBELL]
    before = [_slots(pid, each) for each in known]
    time.sleep(seconds)
    changed = []
    for mapping, first in zip(known, before, strict=True):
        for at, last in _slots(pid, mapping).items():
            if at in first and first[at].put != last.put:
                changed.append((first[at], last))
    return changed
