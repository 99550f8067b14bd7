# SPDX-License-Identifier: Apache-2.0
"""Managed memory under a tenant's limits, holds and buckets, on two GPUs."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import PID, TENANT, row
from tests.vm.guest.nvsim_rm import Block, Rm, Uvm, number, truth
from tests.vm.guest.nvsim_tools import CPU
from tests.vm.guest.sched_hidden import Play, Program, Programs, program
from tests.vm.guest.sched_tools import Worker, family, worker

__all__ = ["family", "program", "worker"]  # fixtures

Workers = Callable[..., Worker]
MIB = 1 << 20
BASE, SIZE, LIMIT = 0x2_0000_0000, 64 * MIB, 16 * MIB
FAILED = ctypes.c_void_p(-1).value
ME = {"kind": PID, "pid": os.getpid()}


def libc() -> ctypes.CDLL:
    lib = ctypes.CDLL(None, use_errno=True)
    lib.mmap.restype = ctypes.c_void_p
    lib.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    lib.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return lib


def managed(uvm: Uvm, base: int = BASE, size: int = SIZE) -> bool:
    """Makes a range; False: it is refused."""
    made = libc().mmap(base, size, 3, mmap.MAP_SHARED | 0x10, uvm.fd, base)
    assert made in (base, FAILED)
    return bool(made == base)


def register(uvm: Uvm, rm: Rm) -> bytes:
    """The UUID of the GPU of `rm`, which the file knows from here on."""
    gid = Block.of("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", flags=2)
    assert rm.control(rm.subdevice, "NV2080_CTRL_CMD_GPU_GET_GID_INFO", gid) == 0
    uuid = gid.bytes_of("data")[:16]
    params = Block.of("UVM_REGISTER_GPU_PARAMS", rmCtrlFd=rm.ctl, hClient=rm.client)
    params.put_bytes("gpu_uuid.uuid", uuid)
    assert uvm.call("UVM_REGISTER_GPU", params) == 0
    return uuid


@contextmanager
def two_gpus() -> Iterator[tuple[Uvm, bytes]]:
    """A UVM file of a program that has a device on GPU 0 only, and the UUID of GPU 1."""
    far, near = Rm.start(minor=1), Rm.start()
    uvm = Uvm(near)
    uuid = register(uvm, far)
    far.close()
    try:
        yield uvm, uuid
    finally:
        libc().munmap(BASE, 2 * SIZE)
        uvm.close()
        near.close()


# ---- limits -----------------------------------------------------------------------------


def test_a_limit_of_the_second_gpu_holds_managed_memory(family: genl.DetShare) -> None:
    family.limit_set(LIMIT, gpu=1, **ME)
    with two_gpus() as (uvm, uuid):
        if managed(uvm):
            uvm.migrate(BASE, SIZE, uuid)
        assert truth("used", 1) <= LIMIT
        assert managed(uvm, size=LIMIT)
        assert uvm.migrate(BASE, LIMIT, uuid) == 0
        assert truth("used", 1) == LIMIT
    family.limit_del(gpu=1, **ME)


def test_a_limit_that_comes_later_counts_what_is_there(family: genl.DetShare) -> None:
    with two_gpus() as (uvm, _):
        assert managed(uvm)
        assert row(family.limit_set(LIMIT, gpu=1, **ME))["used"] == SIZE
        assert not managed(uvm, BASE + SIZE, MIB)
        libc().munmap(BASE, SIZE)
        assert managed(uvm, BASE + SIZE, LIMIT)
    (limit,) = map(row, family.limit_get())
    assert limit["used"] == 0
    family.limit_del(gpu=1, **ME)


def test_it_is_shown_once(family: genl.DetShare) -> None:
    family.tenant_set("team", os.getpid())
    with two_gpus() as (uvm, _):
        assert managed(uvm)
        (tenant,) = map(row, family.tenant_get())
        assert tenant["used"] == SIZE
    family.tenant_del("team")


# ---- holds --------------------------------------------------------------------------------


def raw(uvm: Uvm, name: str, params: ctypes.Structure) -> int:
    """A call whose structure the tables do not have: the status is its last word."""
    fcntl.ioctl(uvm.fd, number(name), params, True)
    return int(params.status)


class Group(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("id", "base", "length")] + [("status", ctypes.c_uint32)]


class Made(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("status", ctypes.c_uint32)]


class Moved(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("uuid", ctypes.c_ubyte * 16), ("status", ctypes.c_uint32)]


class Groups(ctypes.Structure):
    _fields_ = [("ids", ctypes.c_uint64 * 32), ("count", ctypes.c_uint64), ("status", ctypes.c_uint32)]


class Copied(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("buffer", "size", "va", "done")] + [("status", ctypes.c_uint32)]


def by_range(uvm: Uvm) -> None:
    assert uvm.migrate(BASE, 4 * MIB) == 0
    assert uvm.migrate(BASE, 4 * MIB, CPU) == 0


def by_group(uvm: Uvm) -> None:
    group = Made()
    assert raw(uvm, "UVM_CREATE_RANGE_GROUP", group) == 0
    assert raw(uvm, "UVM_SET_RANGE_GROUP", Group(group.id, BASE, 4 * MIB)) == 0
    for uuid in (uvm.uuid, CPU):
        assert raw(uvm, "UVM_MIGRATE_RANGE_GROUP", Moved(group.id, (ctypes.c_ubyte * 16)(*uuid))) == 0
        assert truth("used") == (4 * MIB if uuid == uvm.uuid else 0)


def by_setting(uvm: Uvm) -> None:
    """Moves what comes into a group that prevents migration."""
    assert raw(uvm, "UVM_SET_RANGE_GROUP", Group(0, BASE, 4 * MIB)) == 0


def by_preventing(uvm: Uvm) -> None:
    """Moves what such a group has where it is to stay."""
    group = Made()
    assert raw(uvm, "UVM_CREATE_RANGE_GROUP", group) == 0
    groups = Groups((ctypes.c_uint64 * 32)(group.id), 1)
    assert raw(uvm, "UVM_PREVENT_MIGRATION_RANGE_GROUPS", groups) == 0
    assert raw(uvm, "UVM_DESTROY_RANGE_GROUP", group) == 0


def by_reading(uvm: Uvm) -> None:
    assert raw(uvm, "UVM_TOOLS_READ_PROCESS_MEMORY", Copied(BASE, 4096, BASE)) == 0


def by_writing(uvm: Uvm) -> None:
    assert raw(uvm, "UVM_TOOLS_WRITE_PROCESS_MEMORY", Copied(BASE, 4096, BASE)) == 0


WAYS: dict[str, Callable[[Uvm], None]] = {
    "range": by_range,
    "group": by_group,
    "set": by_setting,
    "prevent": by_preventing,
    "read": by_reading,
    "write": by_writing,
}
"""in which the driver moves or copies managed memory by a channel of its own"""


def mover(way: str = "range") -> Play:
    """Has managed memory moved, without a channel, from when it is told; says how often."""
    rm = Rm.start()
    uvm = Uvm(rm)
    assert managed(uvm, size=4 * MIB)
    moves = 0
    go = threading.Event()

    def loop() -> None:
        nonlocal moves
        go.wait()
        while True:
            WAYS[way](uvm)
            moves += 1

    threading.Thread(target=loop, daemon=True).start()
    yield {"clients": [rm.client]}
    go.set()
    while True:
        yield {"moves": moves}


def heir() -> Play:
    """Its child has its managed memory moved, by the file that it inherits; says how often."""
    rm = Rm.start()
    uvm = Uvm(rm)
    assert managed(uvm, size=4 * MIB)
    moves = mmap.mmap(-1, 8)
    if not os.fork():
        while True:
            by_range(uvm)
            moves[:] = (int.from_bytes(moves, "little") + 1).to_bytes(8, "little")
    while True:
        yield {"moves": int.from_bytes(moves, "little"), "clients": [rm.client]}


def moved(one: Program, seconds: float = 2.0) -> int:
    """How often it moves its memory in so long."""
    before = one.ask()["moves"]
    time.sleep(seconds)
    return int(one.ask()["moves"]) - before


HOLDS = {"gate": (True, False), "pause": (False, True)}


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("way", WAYS)
def test_who_is_held_has_no_memory_moved(family: genl.DetShare, program: Programs, way: str, hold: str) -> None:
    one = program(mover, way)
    until(lambda: one.ask()["moves"])
    family.hold_set(*HOLDS[hold], 60_000, kind=PID, pid=one.pid)
    moved(one, 0.3)  # one that had begun
    assert moved(one, 1.0) == 0
    family.hold_del(kind=PID, pid=one.pid)
    assert moved(one, 1.0)


@pytest.mark.parametrize("hold", HOLDS)
def test_nobody_moves_the_memory_of_who_is_held(family: genl.DetShare, program: Programs, hold: str) -> None:
    """His child neither, whom nobody holds."""
    one = program(heir)
    until(lambda: one.ask()["moves"])
    family.hold_set(*HOLDS[hold], 60_000, kind=PID, pid=one.pid)
    moved(one, 0.3)  # one that had begun
    assert moved(one, 1.0) == 0
    family.hold_del(kind=PID, pid=one.pid)
    assert moved(one, 1.0)


def test_a_helper_of_an_empty_tenant_has_none_moved_either(
    family: genl.DetShare, program: Programs, worker: Workers
) -> None:
    """The bucket is empty for what another program of the tenant's does."""
    busy, one = worker("nvbackground", "--endless"), program(mover)
    for pid in (busy.pid, one.pid):
        family.tenant_set("team", pid)
    free = moved(one)
    family.bucket_set(1_000, 1_000, kind=TENANT, tenant="team")
    try:
        until(lambda: all(each["empty"] for each in map(row, family.bucket_get())))
        assert moved(one) < free / 5
    finally:
        family.tenant_del("team")
