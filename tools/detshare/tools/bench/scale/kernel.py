# SPDX-License-Identifier: Apache-2.0
"""detshare.ko as bytes: what it would answer about many programs, decoded by the daemon's own code each time.

There is no kernel module and no GPU behind it; what is measured is the daemon.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any, Final

from detshare.ctl.core import procfs
from detshare.ctl.core.classes import CLASSES
from detshare.ctl.core.driver import Counts, Descriptor, Gpu, NotAllowed, Opener, ProcessId, SwitchLog, Usage
from detshare.ctl.netlink import genl

__all__ = ["FIRST_PID", "GPU", "Answers", "MadeDriver", "encoded"]

FIRST_PID: Final = 5_000_000
"""larger than any process's number: nobody of this machine is meant"""
START: Final = 100
FAMILY: Final = 41
TURN: Final = 50
"""one in so many programs begins to work, or ends, from one look to the next"""
GPU: Final = Gpu("GPU-00000000-1111-2222-3333-444444444444", 0, "made for bench scale", "0000:01:00.0", 80 << 30)


def encoded(cmd: int, **attributes: Any) -> bytes:
    """A message of the module."""
    kind = genl.MarshalDetShare.cmd_map[cmd]
    msg = kind()
    msg["cmd"], msg["version"] = cmd, 1
    msg["attrs"] = [(kind.name2nla(name), value) for name, value in attributes.items() if value is not None]
    msg["header"].update(type=FAMILY, flags=0, sequence_number=0, pid=0)
    msg.encode()
    return bytes(msg.data)


def _run(number: int, phase: int) -> bytes:
    pid = FIRST_PID + number
    busy = number % 2 if number % TURN else (number // TURN + phase) % 2
    return encoded(
        genl.DETSHARE_CMD_ENTITY_GET,
        vctx_id=number + 1,
        pid=pid,
        gpu=0,
        client=0xC1D00000 + number,
        state=genl.DETSHARE_ENTITY_STATE_ACTIVE if busy else genl.DETSHARE_ENTITY_STATE_IDLE,
        idle_ns=0 if busy else 5_000_000,
        kicks=1000 + phase * 100,
        waits=phase,
        wait_ns=phase * 1_000_000,
        doors=1,
        used_us=phase * 500,
        tsgs=1,
        **{"class": list(CLASSES)[number % len(CLASSES)]},
    )


class Answers:
    """The family's socket, answered from bytes. `events`: a socket from which the module's events come."""

    count = 1000
    events: socket.socket | None = None
    prid = FAMILY
    _bytes: dict[int, list[bytes]] = {}

    def __init__(self, rcvbuf: int = 0) -> None:
        self.marshal = genl.MarshalDetShare()
        self.marshal.prid = FAMILY
        if not self._bytes:
            self._bytes.update(_answers(self.count))
        self._looks = 0

    def _dump(self, cmd: int, **kwarg: Any) -> tuple[Any, ...]:
        made = self._bytes.get(cmd, [b""])
        self._looks += cmd == genl.DETSHARE_CMD_ENTITY_GET
        return tuple(self.marshal.parse(made[self._looks % len(made)]))

    def _do(self, cmd: int, **kwarg: Any) -> Any:
        found = self._bytes.get(cmd)
        (msg,) = self.marshal.parse(found[0] if found else encoded(cmd, **kwarg))
        return msg

    def _ack(self, cmd: int, **kwarg: Any) -> None:
        return None

    def add_membership(self, group: object) -> None:
        return None

    def fileno(self) -> int:
        assert self.events is not None
        return self.events.fileno()

    def recv(self, size: int, flags: int = 0) -> bytes:
        assert self.events is not None
        return self.events.recv(size, flags)

    def close(self) -> None:
        return None


for _name, _method in vars(genl.DetShare).items():
    if not hasattr(Answers, _name):
        setattr(Answers, _name, _method)  # its commands, each of which is one of the three ways to ask


def _answers(count: int) -> dict[int, list[bytes]]:
    numbers = range(count)
    vctxs = (
        encoded(
            genl.DETSHARE_CMD_VCTX_GET,
            vctx_id=n + 1,
            pid=FIRST_PID + n,
            client=0xC1D00000 + n,
            start_time=START,
            comm=f"program{n}",
            gpu=0,
            memory_used=(n % 64) << 20,
        )
        for n in numbers
    )
    tsgs = (
        encoded(
            genl.DETSHARE_CMD_TSG_GET,
            vctx_id=n + 1,
            pid=FIRST_PID + n,
            client=0xC1D00000 + n,
            handle=0x5C000010,
            gpu=0,
            engine=1,
            compute=1,
            channels=4,
            slice_us=2048,
        )
        for n in numbers
    )
    status = encoded(
        genl.DETSHARE_CMD_STATUS_GET,
        module_version="0.1",
        abi=2,
        mode=genl.DETSHARE_MODE_ENFORCE,
        shield=1,
        driver_version="580.159.04",
        gpus=1,
        vctxs=count,
    )
    gpu = encoded(genl.DETSHARE_CMD_GPU_GET, gpu=0, uuid=GPU.uuid, minor=0, total=GPU.memory_bytes, vctxs=count)
    classes = (
        encoded(
            genl.DETSHARE_CMD_CLASS_GET,
            name=name,
            slice_us=row.slice_us,
            level=int(row.level),
            floor_permille=row.floor_permille,
        )
        for name, row in CLASSES.items()
    )
    return {
        genl.DETSHARE_CMD_STATUS_GET: [status],
        genl.DETSHARE_CMD_CLASS_GET: [b"".join(classes)],
        genl.DETSHARE_CMD_GPU_GET: [gpu],
        genl.DETSHARE_CMD_VCTX_GET: [b"".join(vctxs)],
        genl.DETSHARE_CMD_TSG_GET: [b"".join(tsgs)],
        genl.DETSHARE_CMD_ENTITY_GET: [b"".join(_run(n, phase) for n in numbers) for phase in range(4)],
    }


class MadeDriver:
    """Implements detshare.ctl.core.driver.Driver: as many programs as there are answers about."""

    proof = "model"
    version = "580.159.04"

    def __init__(self, count: int) -> None:
        self._openers = [
            Opener(ProcessId(FIRST_PID + n, START), 1, f"program {n}", f"program{n}", "ann", "", "", (5,), ((6, 0),))
            for n in range(count)
        ]

    def switch_log(self, gpu: Gpu) -> SwitchLog:
        raise NotAllowed("no GPU is behind this driver, so it has no context-switch log")

    def gpus(self) -> list[Gpu]:
        return [GPU]

    def openers(self) -> list[Opener]:
        return list(self._openers)

    def borrow(self, process: ProcessId, fd: int) -> AbstractContextManager[Descriptor]:
        raise NotAllowed(f"PID {process.pid} is made up")

    def alive(self, process: ProcessId) -> bool:
        return procfs.start_time(os.getpid()) is not None  # what asking costs

    def find(self, pid: int) -> ProcessId | None:
        return ProcessId(pid, START) if FIRST_PID <= pid < FIRST_PID + len(self._openers) else None

    def newest_client(self) -> int:
        return 0xC1D00000

    def counts(self) -> Counts:
        return Counts(1, 1)

    def usage(self, shares: Collection[str] | None = None) -> Usage:
        return Usage()
