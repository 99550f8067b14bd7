# SPDX-License-Identifier: Apache-2.0
"""Fat binaries: a program for several architectures, as machine code (cubin) and as PTX, each part perhaps packed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from detshare.ebpf.packing import Packing

MAGIC, WRAPPER = 0xBA55ED50, 0x466243B1
HEAD = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
"""kind, version, size of this header, of the payload with padding, of it without where it is compressed; then the
architecture as the ninth, flags as the twelfth, and the unpacked size as the last"""


class Kind(IntEnum):
    """What a part holds; any other number is code that we cannot read."""

    PTX = 1
    CUBIN = 2


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """`arch`: 90 for sm_90 or compute_90; 0: not said. `size`: bytes when unpacked."""

    kind: int
    arch: int
    packing: Packing
    data: bytes
    size: int


def length(head: bytes) -> int:
    """Bytes of the fat binary that begins so. struct.error."""
    _, _, begin, size = HEAD.unpack_from(head)
    return int(begin + size)


def parts(data: bytes) -> list[Part]:
    """ValueError where it is damaged: then none of it can be relied on."""
    if len(data) < HEAD.size or len(data) < (end := length(data)):
        raise ValueError("its fat binary is cut off")
    at, found = HEAD.unpack_from(data)[2], []
    if at < HEAD.size:
        raise ValueError("its fat binary is damaged")
    while at < end:
        if at + _ENTRY.size > end:
            raise ValueError("its fat binary ends within a part")
        kind, _, head, padded, packed, _, _, _, arch, _, _, flags, _, size = _ENTRY.unpack_from(data, at)
        begin = at + head
        if head < _ENTRY.size or begin + padded > end or packed > padded:
            raise ValueError("a part of its fat binary is longer than the whole")
        ways = [each for each in Packing if each and flags & each]
        if len(ways) > 1:
            raise ValueError(f"a part of its fat binary has flags that are not known ({flags:#x})")
        length_of = packed if ways and packed else padded
        payload = data[begin : begin + length_of]
        found.append(Part(kind, arch, ways[0] if ways else Packing.PLAIN, payload, size if ways else padded))
        at = begin + padded
    return found
