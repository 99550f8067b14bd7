# SPDX-License-Identifier: Apache-2.0
"""Module images made by hand, as compilers make them: machine code that only tells its parameters, and fat binaries
with compressed parts."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PARAMETERS = {
    "fill": [(0, 8), (8, 4), (12, 4)],
    "transfer": [(0, 8), (8, 8), (16, 4)],
    "scatter": [(0, 24)],
    "packed": [(0, 16)],
    "ignoring": [(0, 8), (8, 8), (16, 4)],
    "shifted": [(0, 8), (8, 8), (16, 4)],
    "bump": [(0, 8)],
    "look": [(0, 8), (8, 4)],
    "chase": [(0, 8), (8, 4)],
    "point": [(0, 8), (8, 8)],
}
"""of the kernels in kernels.ptx: (offset, size) of each"""
PTX, CUBIN = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
_SYMBOL = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a fat binary. `packing`: 0, LZ4 or ZSTD."""

    kind: int
    arch: int
    data: bytes
    packing: int = 0


def lz4(data: bytes) -> bytes:
    """A block of LZ4, made greedily: the last five bytes are literals, no match begins in the last twelve."""
    out, anchor, at = bytearray(), 0, 0
    seen: dict[bytes, int] = {}

    def emit(literals: bytes, offset: int, length: int) -> None:
        high, low = min(len(literals), 15), min(length - 4, 15) if length else 0
        out.append(high << 4 | low)
        if high == 15:
            out.extend(_more(len(literals) - 15))
        out.extend(literals)
        if length:
            out.extend(struct.pack("<H", offset))
            if low == 15:
                out.extend(_more(length - 4 - 15))

    while at + 12 < len(data):
        key = data[at : at + 4]
        before = seen.get(key, -1)
        seen[key] = at
        if before < 0 or at - before > 0xFFFF:
            at += 1
            continue
        length = 4
        while at + length < len(data) - 5 and data[before + length] == data[at + length]:
            length += 1
        emit(data[anchor:at], at - before, length)
        at += length
        anchor = at
    emit(data[anchor:], 0, 0)
    return bytes(out)


def _more(count: int) -> bytes:
    return b"\xff" * (count // 255) + bytes([count % 255])


def zstd(data: bytes) -> bytes:
    """A frame of zstd with real blocks, by the system's library."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
    room = library.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    out = ctypes.create_string_buffer(room)
    size = library.ZSTD_compress(out, ctypes.c_size_t(room), data, ctypes.c_size_t(len(data)), 3)
    assert size <= room
    return out.raw[:size]


def zstd_raw(data: bytes) -> bytes:
    """A frame of zstd by hand: its one block is not compressed."""
    return struct.pack("<IBI", 0xFD2FB528, 0xA0, len(data)) + (len(data) << 3 | 1).to_bytes(3, "little") + data


def fatbin(parts: Iterable[Part]) -> bytes:
    """A fat binary of these parts."""
    body = b""
    for part in parts:
        stored = {0: lambda data: data, LZ4: lz4, ZSTD: zstd}[part.packing](part.data)
        padded = stored + bytes(-len(stored) % 8)
        sizes = (len(stored), len(part.data)) if part.packing else (0, 0)
        head = struct.pack("<HHIQII", part.kind, 0x101, 64, len(padded), sizes[0], 0)
        head += struct.pack("<HHIIIQQQ", 0, 8, part.arch, 0, 0, 0x11 | part.packing, 0, sizes[1])
        body += head + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def cubin(
    kernels: Mapping[str, Sequence[tuple[int, int]]],
    arch: int = 90,
    origin: int = 90,
    special: bool = False,
    *,
    wide: bool = False,
) -> bytes:
    """An ELF file with the sections that tell the parameters of kernels: (offset, size) of each.

    `wide`: numbers where newer compilers put them.
    """
    sections: list[tuple[str, bytes]] = [("", b"")]
    for name, parameters in kernels.items():
        end = max((offset + size for offset, size in parameters), default=0)
        info = struct.pack("<BBHIHH", 4, 0x0A, 8, _SYMBOL, 0x210, end) + struct.pack("<BBH", 3, 0x19, end)
        for number, (offset, size) in reversed(list(enumerate(parameters))):
            word = size if wide else size << 18 | 0x1F000
            info += struct.pack("<BBHIHHI", 4, 0x45 if wide else 0x17, 12, 0, number, offset, word)
        info += struct.pack("<BBH", 3, 0x1B, 0xFF) + struct.pack("<BBH", 1, 0x2A, 0)
        sections += [(f".text.{name}", bytes(128)), (f".nv.info.{name}", info)]
    names = b""
    places = []
    for name, _ in [*sections, (".shstrtab", b"")]:
        places.append(len(names))
        names += name.encode() + b"\0"
    sections.append((".shstrtab", names))
    if wide:
        flags = arch << 8 | origin << 16 | (0x8 if special else 0)
    else:
        flags = arch | origin << 16 | 0x500 | (0x800 if special else 0)
    body, table, at = b"", b"", 64
    for (_, data), place in zip(sections, places, strict=True):
        table += struct.pack("<IIQQQQIIQQ", place, 1 if data else 0, 0, 0, at if data else 0, len(data), 0, 0, 4, 0)
        body += data
        at += len(data)
    head = b"\x7fELF\x02\x01\x01\x33" + bytes([8 if wide else 7]) + bytes(7)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, at, flags, 64, 56, 0, 64, len(sections), len(sections) - 1)
    return head + body + table


def of_the_tracee(folder: Path) -> dict[str, Path]:
    """Images with the tracee's kernels, in files of this folder. `code`: without PTX, which the others have."""
    text = Path(__file__).with_name("kernels.ptx").read_bytes() + b"\0"
    code = cubin(PARAMETERS, 70, 70)
    made = {
        "lz4": fatbin([Part(PTX, 70, text, LZ4)]),
        "zstd": fatbin([Part(CUBIN, 70, code, ZSTD), Part(PTX, 70, text, ZSTD)]),
        "code": fatbin([Part(CUBIN, 70, code, LZ4)]),
    }
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return {name: folder / name for name in made}
