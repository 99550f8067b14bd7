#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Driver API: two processes with memory of both (cuIpcGetMemHandle) and memory of their own, in turn."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from case import ROUNDS, case  # type: ignore[import-not-found]
from driver import Device  # type: ignore[import-not-found]
from held import IMAGE  # type: ignore[import-not-found]

SHARED, OWN, WORDS = 4 << 20, 8 << 20, 1024
LAZY_PEER = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


class Side:
    """One of the two processes."""

    def __init__(self, first: int) -> None:
        self.device = Device()
        module, self.mix = ctypes.c_void_p(), ctypes.c_void_p()
        self.device.call("cuModuleLoadData", ctypes.byref(module), IMAGE)
        self.device.call("cuModuleGetFunction", ctypes.byref(self.mix), module, b"mix")
        self.own, self.ours, self.turn = self.device.memory(OWN), ctypes.c_uint64(), first

    def step(self) -> bytes:
        """Change both memories, each with something of the other; what is there then."""
        self.turn = self.turn * 69069 + 1 & 0xFFFFFFFF
        at = self.turn % (OWN // 4096) * 4096
        there = ctypes.c_uint64(self.ours.value + at % SHARED)
        here = ctypes.c_uint64(self.own.value + at)
        self.launch(there, self.turn | 1, 3)
        self.device.call("cuMemcpyDtoD_v2", here, there, ctypes.c_size_t(2048))
        self.launch(here, 5, self.turn)
        self.device.call("cuMemcpyDtoD_v2", ctypes.c_uint64(there.value + 2048), here, ctypes.c_size_t(2048))
        found = (ctypes.c_char * 4096)()
        self.device.call("cuMemcpyDtoH_v2", found, there, ctypes.c_size_t(4096))
        return bytes(found)

    def launch(self, at: ctypes.c_uint64, a: int, b: int) -> None:
        """word = word * a + b, for `WORDS` words; waits for it."""
        values = (at, ctypes.c_uint32(WORDS), ctypes.c_uint32(a), ctypes.c_uint32(b))
        params = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        self.device.call("cuLaunchKernel", self.mix, 1, 1, 1, WORDS, 1, 1, 0, None, params, None)
        self.device.synchronize()


def partner(name: str) -> None:
    """The other process: a step for each line that it reads."""
    side, handle = Side(7), Handle()
    ctypes.memmove(ctypes.byref(handle), bytes.fromhex(name), 64)
    side.device.call("cuIpcOpenMemHandle_v2", ctypes.byref(side.ours), handle, LAZY_PEER)
    for _ in sys.stdin:
        print(side.step().hex(), flush=True)
    side.device.call("cuIpcCloseMemHandle", side.ours)


def pieces(side: Side, other: subprocess.Popen[str]) -> Iterator[bytes]:
    """What each of the two finds, in turn, and all bytes at the end."""
    assert other.stdin is not None
    assert other.stdout is not None
    for _ in range(ROUNDS):
        mine = side.step()
        other.stdin.write("\n")
        other.stdin.flush()
        line = other.stdout.readline()
        if not line:
            sys.exit(f"ipc_app.py: the other process ended with {other.wait()}; see the error above")
        yield mine + bytes.fromhex(line)
    yield from whole(side)


def whole(side: Side) -> Iterator[bytes]:
    """All bytes of both memories."""
    for memory, size in ((side.own, OWN), (side.ours, SHARED)):
        back = (ctypes.c_char * size)()
        side.device.call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(size))
        yield bytes(back)


def main() -> None:
    """The program. The other one ends after it was told to."""
    if sys.argv[1:]:
        partner(sys.argv[1])
        return
    side, handle = Side(1), Handle()
    side.ours = side.device.memory(SHARED)
    side.device.synchronize()
    side.device.call("cuIpcGetMemHandle", ctypes.byref(handle), side.ours)
    command = [sys.executable, __file__, bytes(handle.reserved).hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        case(pieces(side, other), [os.getpid(), other.pid])


if __name__ == "__main__":
    main()
