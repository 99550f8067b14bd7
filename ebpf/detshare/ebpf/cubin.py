# SPDX-License-Identifier: Apache-2.0
"""Machine code for one architecture (cubin, an ELF file): which parameters its kernels have. What they do with them is
not read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_CUDA, _NO_BITS = 190, 8  # e_machine, sh_type
_SECTION = struct.Struct("<IIQQQQIIQQ")
_INFO, _TEXT = ".nv.info.", ".text."
_NONE, _BYTE, _HALF, _SIZED = 1, 2, 3, 4  # forms of an attribute
_PARAMETER_BYTES, _PARAMETER, _PARAMETER_WIDE = 0x19, 0x17, 0x45
_ABI_WITH_WIDE_NUMBERS = 8


@dataclass(frozen=True, slots=True)
class Parameter:
    """`offset`: in the buffer of all parameters."""

    number: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Cubin:
    """`target`: "90" or "90a". `origin`: the PTX target that it was compiled from, in the same form; "0": not said.

    `kernels`: parameters by name; None where they are not told in a way that we know.
    """

    target: str
    origin: str
    kernels: dict[str, tuple[Parameter, ...] | None]


def table(head: bytes) -> int:
    """Where the table of sections ends in a file that begins so. struct.error."""
    begin, count = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<H", head, 60)[0]
    return int(begin + max(count, 1) * _SECTION.size)


def length(data: bytes) -> int:
    """Bytes of the file, of which so many as table() says are given. struct.error."""
    begin, ends = struct.unpack_from("<Q", data, 40)[0], [table(data)]
    for at in range(begin, table(data), _SECTION.size):
        _, kind, _, _, offset, size, *_ = _SECTION.unpack_from(data, at)
        if kind != _NO_BITS:
            ends.append(offset + size)
    return int(max(ends))


def read(data: bytes) -> Cubin:
    """ValueError where it is none."""
    try:
        return _read(data)
    except (struct.error, OverflowError):
        raise ValueError("its machine code is cut off") from None


def _read(data: bytes) -> Cubin:
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18)[0] != _CUDA:
        raise ValueError("it is no machine code of a GPU")
    flags = struct.unpack_from("<I", data, 48)[0]
    if data[8] >= _ABI_WITH_WIDE_NUMBERS:
        number, special = flags >> 8 & 0xFF, flags & 0x8
    else:
        number, special = flags & 0xFF, flags & 0x800
    suffix = "a" if special else ""
    kernels: dict[str, tuple[Parameter, ...] | None] = {}
    for name, body in _sections(data):
        if name.startswith(_INFO):
            kernels[name.removeprefix(_INFO)] = _parameters(body)
        elif name.startswith(_TEXT):
            kernels.setdefault(name.removeprefix(_TEXT), None)
    return Cubin(f"{number}{suffix}", f"{flags >> 16 & 0xFF}{suffix}", kernels)


def _sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    at = struct.unpack_from("<Q", data, 40)[0]
    step, count, names = struct.unpack_from("<HHH", data, 58)
    if not at:
        return
    if step != _SECTION.size:
        raise ValueError("its machine code has sections of a form that is not known")
    first = _SECTION.unpack_from(data, at)
    count = count or first[5]  # more than fit 16 bits are told by the first section
    names = first[6] if names == 0xFFFF else names
    if count > (len(data) - at) // step or names >= count:
        raise ValueError("its machine code is cut off")
    begin = _SECTION.unpack_from(data, at + names * step)[4]
    for number in range(count):
        name, _, _, _, offset, size, *_ = _SECTION.unpack_from(data, at + number * step)
        end = data.find(b"\0", begin + name)
        text = data[begin + name : end].decode("utf-8", "replace")
        if text.startswith(_INFO) and offset + size > len(data):
            raise ValueError("its machine code is cut off")
        yield text, data[offset : offset + size] if text.startswith(_INFO) else b""


def _parameters(body: bytes) -> tuple[Parameter, ...] | None:
    found: dict[int, Parameter] = {}
    total, at = 0, 0
    while at + 4 <= len(body):
        form, attribute, value = struct.unpack_from("<BBH", body, at)
        at += 4
        if form == _HALF and attribute == _PARAMETER_BYTES:
            total = value
        if form == _SIZED:
            if at + value > len(body):
                return None
            if attribute in (_PARAMETER, _PARAMETER_WIDE):
                if value < 12:
                    return None
                _, number, offset, word = struct.unpack_from("<IHHI", body, at)
                size = word >> 18 if attribute == _PARAMETER else word & 0xFFFF
                found[number] = Parameter(number, offset, size)
            at += value
        elif form not in (_NONE, _BYTE, _HALF):
            return None
    parameters = sorted(found.values(), key=lambda each: each.number)
    # all of them, one after the other, up to the end of the buffer: else one that holds an address was told otherwise
    end = 0
    for number, each in enumerate(parameters):
        if each.number != number or each.offset < end or not each.size:
            return None
        end = each.offset + each.size
    return tuple(parameters) if end <= total < end + 8 else None
