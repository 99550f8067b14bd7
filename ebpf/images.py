# SPDX-License-Identifier: Apache-2.0
"""Module images in another process's memory or files, down to the PTX in them. What holds none is not understood."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from detshare.ebpf import ptx

_MOST = 256 << 20
_STEP = 1 << 16
_WRAPPER, _FATBIN = 0x466243B1, 0xBA55ED50
_PTX_KIND = 1
_COMPRESSED = 0x2000 | 0x8000  # flags of an entry: LZ4, zstd


class NotUnderstood(Exception):
    """The image tells nothing of its kernels; the message says why."""


def _read(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def from_memory(pid: int, address: int) -> dict[str, ptx.Kernel]:
    """The kernels of the image at an address of a process. NotUnderstood."""
    try:
        magic = struct.unpack("<I", _read(pid, address, 4))[0]
        if magic == _WRAPPER:
            address = struct.unpack_from("<Q", _read(pid, address, 16), 8)[0]
            magic = struct.unpack("<I", _read(pid, address, 4))[0]
        if magic == _FATBIN:
            head = _read(pid, address, 16)
            size = struct.unpack_from("<Q", head, 8)[0] + struct.unpack_from("<H", head, 6)[0]
            return _understand(_read(pid, address, min(size, _MOST)))
        return _understand(_text(pid, address))
    except (OSError, ValueError, struct.error, OverflowError) as error:
        raise NotUnderstood(f"its image could not be read any more ({error})") from None


def _text(pid: int, address: int) -> bytes:
    """Up to the first zero byte, as a text ends; the begin of anything else."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < _MOST:
        at = address + sum(map(len, parts))
        part = _read(pid, at, _STEP - at % _STEP)
        end = part.find(b"\0")
        parts.append(part if end < 0 else part[:end])
        if end >= 0 or not part:
            break
    return b"".join(parts)


def from_file(pid: int, path: str) -> dict[str, ptx.Kernel]:
    """The kernels of a file that a process named. NotUnderstood."""
    root = f"/proc/{pid}/root" if os.path.isabs(path) else f"/proc/{pid}/cwd/"
    try:
        data = Path(root + path).read_bytes()
    except OSError as error:
        raise NotUnderstood(f"its file could not be read ({error.strerror})") from None
    return _understand(data.rstrip(b"\0"))


def _understand(data: bytes) -> dict[str, ptx.Kernel]:
    if data[:4] == struct.pack("<I", _FATBIN):
        return _fatbin(data)
    if data[:4] == b"\x7fELF":
        raise NotUnderstood("it is machine code without PTX")
    text = data.decode("utf-8", "replace")
    if ".entry" not in text and ".version" not in text:
        raise NotUnderstood("it is no image that we know")
    return ptx.kernels(text)


def _fatbin(data: bytes) -> dict[str, ptx.Kernel]:
    at = struct.unpack_from("<H", data, 6)[0]
    why = "its fat binary holds no PTX"
    found: dict[str, ptx.Kernel] = {}
    while at + 64 <= len(data):
        kind, _, head, size = struct.unpack_from("<HHIQ", data, at)
        flags = struct.unpack_from("<Q", data, at + 40)[0]
        if kind == _PTX_KIND:
            if flags & _COMPRESSED:
                why = "its PTX is compressed"
            else:
                found |= ptx.kernels(data[at + head : at + head + size].rstrip(b"\0").decode("utf-8", "replace"))
        at += head + size
    if not found:
        raise NotUnderstood(why)
    return found
