# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a client of another process that a recorded program duplicated objects from (the MPS server's).

The trace shows only handles. What an object is follows from what the program does with its duplicate: a context share
is made below a TSG; anything else is mapped for the GPU, so it is memory, as large as that mapping.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from detshare.tools.replay.layouts import Layouts
from detshare.tools.replay.records import Call, Record
from detshare.tools.replay.script import Catch, Check, Fix, Ioctl, Open, Step, Thing, What, Where

__all__ = ["Peer", "peer_steps"]

_RW = 0xC0000000
_TSG, _CTXSHARE, _SYSMEM = 0xA06C, 0x9067, 0x3E
_CACHED = 0x3A000000  # attributes that CUDA gives to system memory
_HANDLE = 0x5C00F000  # of the stand-in's device and VA space, out of the way of the recorded ones
_SEQ = 0xFFFFFFFF  # its calls are not in the record


@dataclass(frozen=True, slots=True)
class Peer:
    """A client's recorded handle, the handles of its objects that are duplicated, and the trace."""

    client: int
    objects: list[int]
    records: list[Record]

    def duplicate_of(self, handle: int) -> int:
        """The handle that the program gave to its duplicate."""
        for record in self.records:
            if isinstance(record, Call) and record.nr == 0x34 and record.path != "/dev/nvidia-uvm":
                source, what = struct.unpack_from("<II", record.before, 12)
                if (source, what) == (self.client, handle):
                    return int(struct.unpack_from("<I", record.before, 8)[0])
        raise KeyError(handle)

    def is_tsg(self, handle: int) -> bool:
        """Does the program make a context share or a channel below it?"""
        duplicate = self.duplicate_of(handle).to_bytes(4, "little")
        return any(
            isinstance(r, Call) and r.nr == 0x2B and r.path != "/dev/nvidia-uvm" and r.before[4:8] == duplicate
            for r in self.records
        )

    def size(self, handle: int) -> int:
        """Bytes of the GPU mapping that follows the duplication."""
        duplicate = self.duplicate_of(handle).to_bytes(4, "little")
        seen = False
        for record in self.records:
            if not isinstance(record, Call):
                continue
            if record.nr == 0x34 and record.path != "/dev/nvidia-uvm" and record.before[8:12] == duplicate:
                seen = True
            elif seen and record.path == "/dev/nvidia-uvm" and record.nr == 73:
                return int(struct.unpack_from("<Q", record.before, 8)[0])
        return 0x1000


def _request(nr: int, size: int) -> int:
    return _RW | size << 16 | 0x46 << 8 | nr


class _Maker:
    def __init__(self, abi: Layouts, client: int, ctl: int) -> None:
        self.abi = abi
        self.client = client
        self.ctl = ctl
        self.steps: list[Step] = []

    def alloc(self, what: str, parent: int, handle: int, klass: int, params: bytes) -> None:
        size = self.abi.size("NVOS64_PARAMETERS")
        block = struct.pack("<IIII", 0, parent, handle, klass).ljust(size, b"\0")
        step = Ioctl(_SEQ, f"stand-in: {what}", self.ctl, _request(0x2B, size), size, block, 0, 16, params)
        step.fixes.append(Fix(Where.OUTER, Thing.CLIENT, self.client, 0))
        if not parent:
            step.fixes.append(Fix(Where.OUTER, Thing.CLIENT, self.client, 4))
        step.checks.append(Check(Where.OUTER, What.STATUS, 4, self.abi.offset("NVOS64_PARAMETERS", "status"), 0))
        self.steps.append(step)

    def root(self) -> None:
        size = self.abi.size("NVOS64_PARAMETERS")
        block = struct.pack("<IIII", 0, 0, 0, 0x41).ljust(size, b"\0")
        step = Ioctl(_SEQ, "stand-in: client", self.ctl, _request(0x2B, size), size, block, 0)
        step.catches.append(Catch(Where.OUTER, Thing.CLIENT, self.client, 8))
        step.checks.append(Check(Where.OUTER, What.STATUS, 4, self.abi.offset("NVOS64_PARAMETERS", "status"), 0))
        self.steps.append(step)

    def params(self, struct_name: str, **fields: int) -> bytes:
        block = bytearray(self.abi.size(struct_name))
        for name, value in fields.items():
            at = self.abi.offset(struct_name, name)
            struct.pack_into("<Q" if name == "size" else "<I", block, at, value)
        return bytes(block)


def peer_steps(
    peer: Peer, abi: Layouts, client: int, first_file: int
) -> tuple[list[Step], dict[tuple[int, int], tuple[int, int]]]:
    """What makes the stand-in, with the recorded handles, and its objects as (client, handle): (class, parent).

    It takes the two file numbers from `first_file` on.
    """
    maker = _Maker(abi, client, first_file)
    device, vaspace = _HANDLE + 1, _HANDLE + 2
    objects: dict[tuple[int, int], tuple[int, int]] = {}
    # the device class wants the GPU's own file to be open
    maker.steps += [Open(first_file, "nvidiactl"), Open(first_file + 1, "nvidia0")]
    maker.root()
    maker.alloc("device", 0, device, 0x80, maker.params("NV0080_ALLOC_PARAMETERS"))
    maker.alloc("VA space", device, vaspace, 0x90F1, maker.params("NV_VASPACE_ALLOCATION_PARAMETERS"))
    for handle in peer.objects:
        if peer.is_tsg(handle):
            params = maker.params("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", hVASpace=vaspace, engineType=1)
            maker.alloc("TSG", device, handle, _TSG, params)
            objects[peer.client, handle] = (_TSG, device)
            # the server's own, which takes the first number
            share = maker.params("NV_CTXSHARE_ALLOCATION_PARAMETERS", hVASpace=vaspace, flags=1)
            maker.alloc("context share", handle, vaspace + 1, _CTXSHARE, share)
        else:
            params = maker.params(
                "NV_MEMORY_ALLOCATION_PARAMS", size=peer.size(handle), flags=0xC001, attr=_CACHED, owner=device
            )
            maker.alloc("memory", device, handle, _SYSMEM, params)
            objects[peer.client, handle] = (_SYSMEM, device)
    return maker.steps, objects
