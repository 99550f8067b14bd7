# SPDX-License-Identifier: Apache-2.0
"""Binary layouts of RM structures, as the generated tables give them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """One member: byte `offset`, `struct` code of an element, element `count` (0: raw bytes of `size`)."""

    offset: int
    size: int
    code: str
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A C structure of `size` bytes, little-endian, by member name."""

    name: str
    size: int
    fields: Mapping[str, Field]

    def pack(self, **values: int) -> bytearray:
        """A zeroed buffer of `size` bytes with scalar members set. Unknown names raise KeyError."""
        buffer = bytearray(self.size)
        for name, value in values.items():
            self.put(buffer, name, value)
        return buffer

    def put(self, buffer: bytearray, name: str, value: int, index: int = 0) -> None:
        """Set member `name` (element `index` of an array). IndexError past the end of the array."""
        field = self.fields[name]
        if not 0 <= index < max(field.count, 1) or not field.code:
            raise IndexError(f"{self.name}.{name}[{index}]")
        struct.pack_into("<" + field.code, buffer, field.offset + index * struct.calcsize(field.code), value)

    def get(self, buffer: bytes | bytearray, name: str, index: int = 0) -> int:
        """Scalar member `name`, or element `index` of an array."""
        field = self.fields[name]
        if not 0 <= index < max(field.count, 1) or not field.code:
            raise IndexError(f"{self.name}.{name}[{index}]")
        (value,) = struct.unpack_from("<" + field.code, buffer, field.offset + index * struct.calcsize(field.code))
        return int(value)

    def record(self, *names: str) -> struct.Struct:
        """One compiled struct over scalar members `names`, which must be in the order of their offsets.

        It packs and unpacks them in one step from the start of the structure; what lies between is skipped on
        unpacking and zeroed on packing.
        """
        code, position = "<", 0
        for field in (self.fields[name] for name in names):
            if field.offset < position or field.count != 1:
                raise ValueError(f"{self.name}: {names} are not scalars in order of offset")
            code += f"{field.offset - position}x{field.code}"
            position = field.offset + field.size
        return struct.Struct(code + f"{self.size - position}x")

    def raw(self, buffer: bytes | bytearray, name: str) -> bytes:
        """The bytes of member `name`."""
        field = self.fields[name]
        return bytes(buffer[field.offset : field.offset + field.size])
