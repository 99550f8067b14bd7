# SPDX-License-Identifier: Apache-2.0
"""Module images in another process's memory or files: what is in them, and what of it tells what a kernel writes.

PTX tells it. Machine code tells only which parameters there are; PTX of the same target beside it counts for it.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from detshare.ebpf import cubin, fatbin, packing, ptx, ptx_flow
from detshare.ebpf.fatbin import Kind, Part
from detshare.ebpf.packing import MOST, Packing
from detshare.ebpf.ptx import Kernel, Word

_STEP = 1 << 16
_MOST = 256 << 20
"""bytes of an image as it is stored, for all architectures"""
MACHINE_CODE = "only machine code tells of it"


class NotUnderstood(Exception):
    """The image tells nothing of its kernels; the message says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """What one module was loaded from."""

    parts: tuple[Part, ...]
    """those that may run here"""

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(len(each.data) for each in self.parts)

    def kernel(self, name: str) -> Kernel | None:
        """What a kernel may write, whichever of the parts runs. None: no part has it."""
        texts, codes, found = [], [], []
        for each in self.parts:
            try:
                opened = _open(each)
            except NotUnderstood as error:
                found.append(Kernel(name, 0, (), str(error)))
                continue
            if isinstance(opened, ptx.Module):
                texts.append((opened, ptx_flow.kernel(opened, name)))
            else:
                codes.append(opened)
        found += [kernel for _, kernel in texts if kernel is not None]
        for code in codes:
            if name not in code.kernels:
                continue
            laid = _of_machine_code(name, code.kernels[name])
            known = next((k for module, k in texts if k is not None and module.target == code.origin), None)
            if known is None or (not laid.anywhere and known.parameters != laid.parameters):
                found.append(laid)
        return _merged(name, found)


def _may_run(parts: Collection[Part], devices: Collection[int]) -> list[Part]:
    """Of the machine code the best for each device, as the driver chooses, and PTX, which it is told to take by an
    environment variable or takes where there is no machine code; all, where devices are not known."""
    if not devices or any(not each.arch for each in parts):
        return list(parts)
    chosen = [each for each in parts if each.kind not in (Kind.PTX, Kind.CUBIN)]
    for device in devices:
        codes = [each.arch for each in parts if each.kind == Kind.CUBIN and device // 10 * 10 <= each.arch <= device]
        best = max(codes, default=0)
        chosen += [each for each in parts if each.kind == Kind.CUBIN and each.arch == best]
        chosen += [each for each in parts if each.kind == Kind.PTX and each.arch <= device]
    return list(dict.fromkeys(chosen))


@lru_cache(maxsize=4)
def _open(part: Part) -> ptx.Module | cubin.Cubin:
    if part.kind not in (Kind.PTX, Kind.CUBIN):
        raise NotUnderstood(f"its fat binary holds code of a kind that is not known ({part.kind})")
    try:
        data = packing.unpack(part.packing, part.data, part.size)
        if part.kind == Kind.CUBIN:
            return cubin.read(data)
        return ptx.Module(data.rstrip(b"\0").decode("utf-8", "replace"))
    except (packing.PackingError, ValueError) as error:
        raise NotUnderstood(str(error)) from None


def _of_machine_code(name: str, parameters: tuple[cubin.Parameter, ...] | None) -> Kernel:
    """It may write from every address in its parameters."""
    if parameters is None:
        return Kernel(name, 0, (), "its machine code does not tell its parameters")
    words = tuple(Word(p.number, 0, p.offset, p.size) for p in parameters if p.size >= 8)
    return Kernel(name, len(parameters), words, assumed=MACHINE_CODE)


def _merged(name: str, found: list[Kernel]) -> Kernel | None:
    if not found:
        return None
    words = sorted({word for each in found for word in each.words}, key=lambda word: (word.packed, -word.size))
    kept: list[Word] = []
    for word in words:
        inside = kept and word.parameter == kept[-1].parameter and not (word.offset - kept[-1].offset) % 4
        if not inside or word.packed + word.size > kept[-1].packed + kept[-1].size:
            kept.append(word)
    anywhere = next((each.anywhere for each in found if each.anywhere), "")
    assumed = next((each.assumed for each in found if each.assumed), "")
    return replace(found[0], words=tuple(kept), anywhere=anywhere, assumed=assumed)


def _read(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def from_memory(pid: int, address: int, devices: Collection[int] = ()) -> Image:
    """The image at an address of a process; `devices` as of understand(). NotUnderstood."""
    try:
        head = _read(pid, address, 16)
        if struct.unpack_from("<I", head)[0] == fatbin.WRAPPER:
            address = struct.unpack_from("<Q", head, 8)[0]
            head = _read(pid, address, 16)
        if struct.unpack_from("<I", head)[0] == fatbin.MAGIC:
            size = fatbin.length(head)
        elif head[:4] == b"\x7fELF":
            size = _elf_length(pid, address)
        else:
            return understand(_text(pid, address), devices)
        if size > _MOST:
            raise NotUnderstood(f"its image says to be {size} bytes")
        return understand(_read(pid, address, size), devices)
    except (OSError, ValueError, struct.error, OverflowError) as error:
        raise NotUnderstood(f"its image could not be read any more ({error})") from None


def _elf_length(pid: int, address: int) -> int:
    table = cubin.table(_read(pid, address, 64))
    return cubin.length(_read(pid, address, min(table, MOST)))


def _text(pid: int, address: int) -> bytes:
    """Up to the first zero byte, as a text ends; the begin of anything else."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < MOST:
        at = address + sum(map(len, parts))
        part = _read(pid, at, _STEP - at % _STEP)
        end = part.find(b"\0")
        parts.append(part if end < 0 else part[:end])
        if end >= 0 or not part:
            break
    return b"".join(parts)


def from_file(pid: int, path: str, devices: Collection[int] = ()) -> Image:
    """The image in a file that a process named; `devices` as of understand(). NotUnderstood."""
    root = f"/proc/{pid}/root" if os.path.isabs(path) else f"/proc/{pid}/cwd/"
    try:
        # a path may name anything by now: a pipe would keep us waiting, a device would never end
        with open(os.open(root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotUnderstood("its file is no ordinary one")
            data = file.read(_MOST + 1)
    except OSError as error:
        raise NotUnderstood(f"its file could not be read ({error.strerror})") from None
    if len(data) > _MOST:
        raise NotUnderstood("its file is too large")
    return understand(data, devices)


def understand(data: bytes, devices: Collection[int] = ()) -> Image:
    """An image that was read. `devices`: architectures that are here (90 for sm_90); none: any. NotUnderstood."""
    if data[:4] == struct.pack("<I", fatbin.MAGIC):
        try:
            parts = fatbin.parts(data)
        except ValueError as error:
            raise NotUnderstood(str(error)) from None
        if not parts:
            raise NotUnderstood("its fat binary is empty")
        return Image(tuple(_may_run(parts, devices)))
    kind = Kind.CUBIN if data[:4] == b"\x7fELF" else Kind.PTX
    if kind is Kind.PTX and not (b".entry" in data or b".version" in data):
        raise NotUnderstood("it is no image that we know")
    part = Part(kind, 0, Packing.PLAIN, data, len(data))
    _open(part)
    return Image((part,))
