# SPDX-License-Identifier: Apache-2.0
"""Compressed parts of fat binaries, unpacked by the system's own libraries: LZ4 blocks and zstd frames.

Both libraries are on every Debian and Ubuntu, for apt and dpkg need them; nothing is installed for this.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache

MOST = 64 << 20
"""bytes of one part, unpacked; more is refused"""


class Packing(IntEnum):
    """How a part is stored: bits of its flags."""

    PLAIN = 0
    LZ4 = 0x2000
    ZSTD = 0x8000


class PackingError(Exception):
    """It could not be unpacked; the message says why."""


_LIBRARIES = {Packing.LZ4: "liblz4.so.1", Packing.ZSTD: "libzstd.so.1"}


@cache
def _library(packing: Packing) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARIES[packing])
    except OSError:
        raise PackingError(f"it is compressed, and {_LIBRARIES[packing]} is not installed") from None
    if packing is Packing.LZ4:
        library.LZ4_decompress_safe.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    else:
        library.ZSTD_decompress.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
        library.ZSTD_decompress.restype = ctypes.c_size_t
    return library


def missing() -> list[str]:
    """Libraries that are not installed."""
    found = []
    for packing, name in _LIBRARIES.items():
        try:
            _library(packing)
        except PackingError:
            found.append(name)
    return found


def unpack(packing: Packing, data: bytes, size: int) -> bytes:
    """Exactly `size` bytes. PackingError."""
    if packing is Packing.PLAIN:
        return data
    if not 0 < size <= MOST or len(data) > MOST:
        raise PackingError(f"it says to be {size} bytes when unpacked")
    library, out = _library(packing), ctypes.create_string_buffer(size)
    if packing is Packing.LZ4:
        made = library.LZ4_decompress_safe(data, out, len(data), size)
    else:
        made = library.ZSTD_decompress(out, size, data, len(data))
    # both answer with another number where the data is damaged: a negative one, or one above any size
    if made != size:
        raise PackingError(f"its {packing.name} data is damaged")
    return out.raw
