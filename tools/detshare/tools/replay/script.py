# SPDX-License-Identifier: Apache-2.0
"""A replay script: what `nvreplay` does, step by step, and its compact binary form.

Values that belong to the recorded machine are holes in the recorded bytes. A *fix* fills one before the call, a *catch*
takes one from the answer, a *check* compares a part of the answer with the record.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field

__all__ = [
    "Buffer", "Catch", "Check", "Close", "Fix", "Ioctl", "Map", "Open",
    "Program", "Script", "Step", "Thing", "What", "Where",
]  # fmt: skip

MAGIC = b"NVREPLAY"
FORMAT = 1
NOWHERE = 0xFFFFFFFF


class Where(enum.IntEnum):
    """In which block a value lies."""

    OUTER = 0
    NESTED = 1


class Thing(enum.IntEnum):
    """What fills a hole; each kind is numbered by itself."""

    CLIENT = 0  # u32: handle of a client, which RM chose
    FILE = 1  # u32: descriptor
    UUID = 2  # 16 bytes: the GPU's
    GPU_ID = 3  # u32
    BUFFER = 4  # u64: address of one of our buffers
    LINEAR = 5  # u64: what RM_MAP_MEMORY answered
    CPU = 6  # u64: address of one of our mappings


class What(enum.IntEnum):
    """What a checked value is, for the report."""

    STATUS = 0
    HANDLE = 1
    SIZE = 2
    ANSWER = 3


@dataclass(frozen=True, slots=True)
class Fix:
    """Thing number `index` goes to `offset` before the call."""

    where: Where
    thing: Thing
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Catch:
    """Thing number `index` is taken from `offset` after the call."""

    where: Where
    thing: Thing
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Check:
    """`width` is 4 or 8 bytes."""

    where: Where
    what: What
    width: int
    offset: int
    expected: int


@dataclass(frozen=True, slots=True)
class Open:
    """Open /dev/NAME as file number `file`."""

    file: int
    device: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close file number `file`; what it carries of mappings stays."""

    file: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of the program: `content`, zeroes behind it up to `size`; at `address` (0: anywhere)."""

    index: int
    address: int
    size: int
    content: bytes = b""


@dataclass(slots=True)
class Ioctl:
    """One call. `size`: bytes of the block, of which `block` are given and the rest is zero; `ret` is 0 or -errno."""

    seq: int
    name: str
    file: int
    request: int
    size: int
    block: bytes
    ret: int
    nested_at: int = NOWHERE
    nested: bytes = b""
    fixes: list[Fix] = field(default_factory=list)
    catches: list[Catch] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Map:
    """mmap number `index`, at `address` where `fixed`."""

    seq: int
    index: int
    file: int
    address: int
    length: int
    prot: int
    fixed: bool
    offset: int


Step = Open | Close | Buffer | Ioctl | Map


@dataclass(frozen=True, slots=True)
class Program:
    """Where work can go on after the replay: files, handles, the doorbell's mapping, free handles and addresses."""

    client: int
    ctl: int
    gpu: int
    uvm: int
    doorbell: int
    device: int
    subdevice: int
    vaspace: int
    tsg: int
    ctxshare: int
    next_handle: int
    next_address: int


@dataclass(slots=True)
class Script:
    """The whole, with how many there are of each numbered kind."""

    source: str
    steps: list[Step]
    files: int
    clients: int
    buffers: int
    linears: int
    maps: int
    program: Program

    def pack(self) -> bytes:
        """The binary form, little endian, as tests/nvclient/replay_file.c reads it."""
        name = self.source.encode()[:255]
        p = self.program
        out = [
            MAGIC,
            struct.pack(
                "<IIHHHHH", FORMAT, len(self.steps), self.files, self.clients, self.buffers, self.linears, self.maps
            ),
            struct.pack("<B", len(name)),
            name,
            struct.pack("<HHHHH", p.client, p.ctl, p.gpu, p.uvm, p.doorbell),
            struct.pack("<IIIIIIQ", p.device, p.subdevice, p.vaspace, p.tsg, p.ctxshare, p.next_handle, p.next_address),
        ]
        out += [_pack(step) for step in self.steps]
        return b"".join(out)


def _pack(step: Step) -> bytes:
    match step:
        case Open():
            name = step.device.encode()
            return struct.pack("<BHB", 1, step.file, len(name)) + name
        case Close():
            return struct.pack("<BH", 2, step.file)
        case Buffer():
            return struct.pack("<BHQQI", 3, step.index, step.address, step.size, len(step.content)) + step.content
        case Map():
            where = (step.address, step.length, step.offset, step.prot, step.fixed)
            return struct.pack("<BIHHQQQIB", 4, step.seq, step.index, step.file, *where)
        case Ioctl():
            return _pack_ioctl(step)


def _pack_ioctl(step: Ioctl) -> bytes:
    name = step.name.encode()[:255]
    return b"".join(
        [
            struct.pack("<BIHIIi", 5, step.seq, step.file, step.request, step.size, step.ret),
            struct.pack("<B", len(name)) + name,
            struct.pack("<I", len(step.block)) + step.block,
            struct.pack("<II", step.nested_at, len(step.nested)) + step.nested,
            struct.pack("<BBB", len(step.fixes), len(step.catches), len(step.checks)),
            *(struct.pack("<BBHI", f.where, f.thing, f.index, f.offset) for f in step.fixes),
            *(struct.pack("<BBHI", c.where, c.thing, c.index, c.offset) for c in step.catches),
            *(struct.pack("<BBBIQ", c.where, c.what, c.width, c.offset, c.expected) for c in step.checks),
        ]
    )
