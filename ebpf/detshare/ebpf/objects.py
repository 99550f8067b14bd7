# SPDX-License-Identifier: Apache-2.0
"""Births and deaths of RM objects of every process, from objects.bpf.c."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.sweep import Sweep
from detshare.ebpf.attach import has_tracepoint
from detshare.ebpf.bpf import MapKind, MapSpec
from detshare.ebpf.loader import Loaded, Trouble
from detshare.ebpf.records import XFER_SLOT, Decoder, unpack
from detshare.ebpf.ring import Ring
from detshare.ebpf.world import ObjectChange, World

RING_BYTES = 1 << 24
"""some 70 000 events at least: more than a second of 50 000 calls that nobody reads"""
_CALLS, _HOLDERS = 16384, 16384
_RECORD = 232
_PENDING = 32
_CONTROL = struct.Struct("<IIII")
_TRACEPOINTS = {
    "ioctl_enter": "sys_enter_ioctl",
    "ioctl_exit": "sys_exit_ioctl",
    "open_exit": "sys_exit_open",
    "openat_exit": "sys_exit_openat",
    "openat2_exit": "sys_exit_openat2",
    "dup_exit": "sys_exit_dup",
    "dup2_exit": "sys_exit_dup2",
    "dup3_exit": "sys_exit_dup3",
    "pidfd_getfd_exit": "sys_exit_pidfd_getfd",
    "fcntl_enter": "sys_enter_fcntl",
    "fcntl_exit": "sys_exit_fcntl",
    "close_enter": "sys_enter_close",
    "dup2_enter": "sys_enter_dup2",
    "dup3_enter": "sys_enter_dup3",
    "close_range_enter": "sys_enter_close_range",
}
_RAW = {
    "process_fork": "sched_process_fork",
    "process_exec": "sched_process_exec",
    "process_exit": "sched_process_exit",
}


class ObjectTracer:
    """Watches from its making until it is closed. Not for several threads."""

    def __init__(
        self, abi: Abi, *, ring_bytes: int = RING_BYTES, ignored: Collection[int] = (), control: str = ""
    ) -> None:
        """`ignored`: processes whose calls are left out besides our own. `control`: the name of one that is told of
        besides births and deaths, where the driver did it. EbpfError."""
        decoder = Decoder(abi)
        self.world = World(decoder)
        self._ignored = {os.getpid(), *ignored}
        self._early = [opener.id.pid for opener in Sweep().openers()]
        self._early_seen: set[int] = set()
        self._program = Loaded(
            "objects",
            (
                MapSpec("events", MapKind.RINGBUF, 0, 0, ring_bytes),
                MapSpec("escapes", MapKind.ARRAY, 4, 4, XFER_SLOT + 1),
                MapSpec("control", MapKind.ARRAY, 4, _CONTROL.size, 1),
                MapSpec("calls", MapKind.HASH, 8, _PENDING, _CALLS),
                MapSpec("holders", MapKind.HASH, 4, 4, _HOLDERS),
                MapSpec("scratch", MapKind.PERCPU_ARRAY, 4, _RECORD, 1),
            ),
        )
        try:
            self._ring = Ring(self._program.maps["events"])
            for pid in self._early:
                self._program.maps["holders"].set(struct.pack("<I", pid), struct.pack("<I", 1))
            for function, where in _RAW.items():
                self._program.raw_tracepoint(where, function)
            for function, where in _TRACEPOINTS.items():
                if has_tracepoint(f"syscalls/{where}") or where.endswith("ioctl"):
                    self._program.tracepoint(f"syscalls/{where}", function)
            escapes, sizes = self._program.maps["escapes"], {XFER_SLOT: decoder.xfer, **decoder.escapes()}
            if control:
                escape, size, offset = decoder.controls
                told = _CONTROL.pack(escape, offset, abi.control(control).number, 0)
                self._program.maps["control"].set(bytes(4), told)
                sizes[escape] = size
            for escape, size in sizes.items():
                escapes.set(struct.pack("<I", escape), struct.pack("<I", size))
        except BaseException:
            self._program.close()
            raise
        self.how = self._program.how
        self.taken = 0

    def poll(self, seconds: float, most: int = 4096) -> Iterator[ObjectChange]:
        """What happened, oldest first: what is there, or what comes within that time."""
        if not self._ring.wait(seconds):
            return
        for data in self._ring.read(most):
            record = unpack(data)
            if record.pid in self._ignored:
                continue
            self.taken += 1
            if record.pid in self._early:
                self._early_seen.add(record.pid)
            yield from self.world.take(record)

    def wait(self, seconds: float) -> bool:
        """True when there is something to poll() within that time."""
        return self._ring.wait(seconds)

    def records(self) -> Iterator[bytes]:
        """What waits to be read, as objects.bpf.c wrote it: taken, and of no effect on the world."""
        return self._ring.read()

    def drain(self, quiet: float = 0.05, most_s: float = 10.0) -> list[ObjectChange]:
        """Everything up to a moment without news."""
        found: list[ObjectChange] = []
        until = time.monotonic() + most_s
        while time.monotonic() < until and self._ring.wait(quiet):
            found += self.poll(0)
        return found

    def fileno(self) -> int:
        """Readable when there is something to poll()."""
        return self._program.maps["events"].fd

    def trouble(self) -> Trouble:
        """What was lost so far."""
        return self._program.trouble()

    def notes(self) -> list[str]:
        """Why the view is partial; empty when it is whole."""
        early = [pid for pid in self._early if pid in self._early_seen or os.path.exists(f"/proc/{pid}")]
        said = [*self._program.notes, *self.trouble().words(), *self.world.notes()]
        if early:
            said.append(f"{len(early)} program(s) were running before this trace: what they had made is not known")
        return said

    def close(self) -> None:
        """Detaches."""
        with suppress(BufferError):
            self._ring.close()
        self._program.close()
