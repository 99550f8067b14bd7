# SPDX-License-Identifier: Apache-2.0
"""What objects.bpf.c tells, decoded by the ABI tables of the loaded driver."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from detshare.ctl.abi.versions import Abi, Missing

_HEAD = struct.Struct("<QQIIIiHHHH")
XFER_SLOT = 256
_PLAIN = ("hRoot", "hObjectParent", "hObjectNew", "hClass", "status")
_ALLOCATING = (
    "ALLOC_SIZE",
    "ALLOC_SIZE_RANGE",
    "ALLOC_TILED_PITCH_HEIGHT",
    "ALLOC_OS_DESCRIPTOR",
)
_MEMBER = {
    "ALLOC_SIZE": "data.AllocSize.hMemory",
    "ALLOC_SIZE_RANGE": "data.AllocSizeRange.hMemory",
    "ALLOC_TILED_PITCH_HEIGHT": "data.AllocTiledPitchHeight.hMemory",
    "ALLOC_OS_DESCRIPTOR": "data.AllocOsDesc.hMemory",
}


class Kind(IntEnum):
    """enum ds_object_event."""

    CALL = 1
    HOLD = 2
    CLOSE = 3
    CLOSE_RANGE = 4
    FORK = 5
    EXEC = 6
    EXIT = 7


@dataclass(frozen=True, slots=True)
class Record:
    """struct ds_object_record."""

    when: int
    file: int
    pid: int
    fd: int
    other: int
    ret: int
    kind: Kind
    minor: int
    escape: int
    block: bytes


def unpack(data: bytes) -> Record:
    """One record of the ring."""
    when, file, pid, fd, other, ret, event, minor, escape, size = _HEAD.unpack_from(data)
    return Record(when, file, pid, fd, other, ret, Kind(event), minor, escape, data[_HEAD.size : _HEAD.size + size])


@dataclass(frozen=True, slots=True)
class Made:
    """An RM object was made; for a client `client` and `handle` are the same. `source`: it is a duplicate of that."""

    client: int
    parent: int
    handle: int
    number: int
    """its class; 0 for a duplicate, whose class is its source's"""
    source: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Freed:
    """An RM object was freed with all below it."""

    client: int
    handle: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A control was done on an RM object. `number`: its command."""

    client: int
    handle: int
    number: int


Change = Made | Freed | Asked


class Decoder:
    """From parameter blocks, as the driver left them, to what was made or freed. For one driver version."""

    def __init__(self, abi: Abi) -> None:
        self._abi = abi
        self.roots = {abi.klass(name) for name in ("NV01_ROOT", "NV01_ROOT_NON_PRIV", "NV01_ROOT_CLIENT")}
        self.memory = {
            number for name, number in abi.classes.items() if name.startswith("NV01_MEMORY_") and "VIRTUAL" not in name
        }
        """classes of memory objects"""
        self._local = abi.klass("NV01_MEMORY_LOCAL_USER")
        self._by_size: dict[tuple[int, int], Callable[[bytes], Change | None]] = {}
        self.xfer = abi.constant("NV_ESC_IOCTL_XFER_CMD")
        for escape, layout, members in (
            ("NV_ESC_RM_ALLOC", "NVOS21_PARAMETERS", _PLAIN),
            ("NV_ESC_RM_ALLOC", "NVOS64_PARAMETERS", _PLAIN),
            ("NV_ESC_RM_ALLOC_OBJECT", "NVOS05_PARAMETERS", _PLAIN),
            (
                "NV_ESC_RM_ALLOC_MEMORY",
                "nv_ioctl_nvos02_parameters_with_fd",
                ("params.hRoot", "params.hObjectParent", "params.hObjectNew", "params.hClass", "params.status"),
            ),
        ):
            self._add(escape, layout, self._maker(layout, members))
        asked = abi.layout("NVOS54_PARAMETERS")
        self.controls = abi.constant("NV_ESC_RM_CONTROL"), asked.size, asked.fields["cmd"].offset
        """escape of controls, bytes of their block, and where in it the command is"""
        self._add("NV_ESC_RM_CONTROL", "NVOS54_PARAMETERS", self._control())
        self._add("NV_ESC_RM_FREE", "NVOS00_PARAMETERS", self._free())
        self._add("NV_ESC_RM_DUP_OBJECT", "NVOS55_PARAMETERS", self._dup())
        self._add("NV_ESC_RM_VID_HEAP_CONTROL", "NVOS32_PARAMETERS", self._vid_heap())

    def _add(self, escape: str, layout: str, decode: Callable[[bytes], Change | None]) -> None:
        self._by_size[self._abi.constant(escape), self._abi.layout(layout).size] = decode

    def escapes(self) -> dict[int, int]:
        """Escape -> bytes of the longest block it may have, of calls that make or free; what objects.bpf.c is told."""
        sizes: dict[int, int] = {}
        for escape, size in self._by_size:
            if escape == self.controls[0]:
                continue
            sizes[escape] = max(size, sizes.get(escape, 0))
        return sizes

    def _maker(self, layout: str, members: tuple[str, ...]) -> Callable[[bytes], Change | None]:
        read = self._abi.layout(layout).record(*members).unpack_from
        roots = self.roots

        def decode(block: bytes) -> Made | None:
            root, parent, handle, number, status = read(block)
            if status:
                return None
            return Made(handle, 0, handle, number) if number in roots else Made(root, parent, handle, number)

        return decode

    def _free(self) -> Callable[[bytes], Change | None]:
        read = self._abi.layout("NVOS00_PARAMETERS").record("hRoot", "hObjectOld", "status").unpack_from

        def decode(block: bytes) -> Freed | None:
            root, handle, status = read(block)
            return None if status else Freed(root, handle)

        return decode

    def _control(self) -> Callable[[bytes], Change | None]:
        read = self._abi.layout("NVOS54_PARAMETERS").record("hClient", "hObject", "cmd", "status").unpack_from

        def decode(block: bytes) -> Asked | None:
            client, handle, command, status = read(block)
            return None if status else Asked(client, handle, command)

        return decode

    def _dup(self) -> Callable[[bytes], Change | None]:
        names = ("hClient", "hParent", "hObject", "hClientSrc", "hObjectSrc", "status")
        read = self._abi.layout("NVOS55_PARAMETERS").record(*names).unpack_from

        def decode(block: bytes) -> Made | None:
            client, parent, handle, source_client, source, status = read(block)
            return None if status else Made(client, parent, handle, 0, (source_client, source))

        return decode

    def _vid_heap(self) -> Callable[[bytes], Change | None]:
        abi = self._abi
        layout = abi.layout("NVOS32_PARAMETERS")
        read = layout.record("hRoot", "hObjectParent", "function", "status").unpack_from
        making: dict[int, Callable[[bytes], int]] = {}
        for name in _ALLOCATING:
            try:
                number, at = abi.constant(f"NVOS32_FUNCTION_{name}"), layout.fields[_MEMBER[name]].offset
            except (Missing, KeyError):
                continue
            making[number] = lambda block, at=at: int(struct.unpack_from("<I", block, at)[0])  # type: ignore[misc]
        freeing = abi.constant("NVOS32_FUNCTION_FREE")
        freed_at = layout.fields["data.Free.hMemory"].offset

        def decode(block: bytes) -> Change | None:
            root, parent, function, status = read(block)
            if status:
                return None
            if function in making:
                return Made(root, parent, making[function](block), self._local)
            if function == freeing:
                return Freed(root, int(struct.unpack_from("<I", block, freed_at)[0]))
            return None

        return decode

    def decode(self, record: Record) -> Change | None:
        """What a call did; None: nothing that counts, or the driver refused it."""
        if record.kind is not Kind.CALL or record.ret < 0:
            return None
        found = self._by_size.get((record.escape, record.other))
        if found is None or len(record.block) < record.other:
            return None
        return found(record.block)
