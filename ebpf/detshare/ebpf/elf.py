# SPDX-License-Identifier: Apache-2.0
"""Exported functions of a shared library, from what the dynamic linker reads: stripping does not take it away."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from detshare.ebpf.errors import EbpfError

_PT_LOAD, _PT_DYNAMIC, _PF_X = 1, 2, 1
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_MACHINE_X86_64 = 62


@dataclass(frozen=True, slots=True)
class Library:
    """`functions`: exported name -> offset in the file. `code`: (offset, size) of each executable part of the file."""

    functions: dict[str, int]
    code: tuple[tuple[int, int], ...]


class _File:
    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        machine = struct.unpack_from("<H", data, 18)[0]
        if data[:5] != b"\x7fELF\x02" or machine != _MACHINE_X86_64:
            raise ValueError("it is no 64-bit library for x86-64")
        self.phoff = struct.unpack_from("<Q", data, 32)[0]
        self.phsize, self.phnum = struct.unpack_from("<HH", data, 54)
        self.segments = [
            struct.unpack_from("<IIQQQQQ", data, self.phoff + number * self.phsize) for number in range(self.phnum)
        ]

    def offset(self, address: int) -> int:
        """Where in the file an address of the library lies."""
        for kind, _, offset, begin, _, size, _ in self.segments:
            if kind == _PT_LOAD and begin <= address < begin + size:
                return int(address - begin + offset)
        raise ValueError(f"address {address:#x} is in no part of the file")

    def dynamic(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for kind, _, offset, _, _, size, _ in self.segments:
            if kind == _PT_DYNAMIC:
                for at in range(offset, offset + size - 15, 16):
                    tag, value = struct.unpack_from("<QQ", self.data, at)
                    if tag == 0:
                        break
                    found[tag] = value
        return found

    def symbols(self, dynamic: dict[int, int]) -> int:
        """How many dynamic symbols there are; no header says so, the hash tables do."""
        if _DT_HASH in dynamic:
            return int(struct.unpack_from("<I", self.data, self.offset(dynamic[_DT_HASH]) + 4)[0])
        if _DT_GNU_HASH not in dynamic:
            raise ValueError("it has no table of exported functions")
        at = self.offset(dynamic[_DT_GNU_HASH])
        buckets, first, bloom, _ = struct.unpack_from("<IIII", self.data, at)
        table = at + 16 + 8 * bloom
        last = max(struct.unpack_from(f"<{buckets}I", self.data, table), default=0)
        if last < first:
            return int(first)
        chain = table + 4 * buckets
        while not struct.unpack_from("<I", self.data, chain + 4 * (last - first))[0] & 1:
            last += 1
        return int(last) + 1


def read(path: str | Path) -> Library:
    """The exported functions of a library. EbpfError where the file is no such library."""
    asked = f"read the functions of {path}"
    try:
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(_File(data))
    except OSError as error:
        raise EbpfError(asked, error.strerror or str(error), "is it there, and may we read it?") from error
    except (ValueError, struct.error) as error:
        raise EbpfError(asked, str(error), "name the libcuda.so.1 that programs load, with --libcuda") from error


def _read(file: _File) -> Library:
    dynamic = file.dynamic()
    if _DT_SYMTAB not in dynamic or _DT_STRTAB not in dynamic:
        raise ValueError("it has no dynamic symbols: a static program, or damaged")
    count = file.symbols(dynamic)
    table, names = file.offset(dynamic[_DT_SYMTAB]), file.offset(dynamic[_DT_STRTAB])
    functions: dict[str, int] = {}
    for number in range(count):
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", file.data, table + 24 * number)
        if section and value and info & 15 in (_STT_FUNC, _STT_GNU_IFUNC):
            end = file.data.find(b"\0", names + name)
            functions[file.data[names + name : end].decode("ascii", "replace")] = file.offset(value)
    code = tuple((s[2], s[5]) for s in file.segments if s[0] == _PT_LOAD and s[1] & _PF_X)
    return Library(functions, code)
