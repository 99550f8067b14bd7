# SPDX-License-Identifier: Apache-2.0
"""Calls that own memory makes wait (userfaultfd), and those that the driver refuses: nobody hides there."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import row, vctxs
from tests.vm.guest.nvsim_rm import Block, Rm, Uvm, address, escape, number, request, status
from tests.vm.guest.nvsim_tools import tsg, vas
from tests.vm.guest.nvsim_work import ENDLESS, Channel, Doorbell
from tests.vm.guest.sched_hidden import Play, Programs, of, program, share, started
from tests.vm.guest.sched_tools import family, worker

__all__ = ["family", "program", "worker"]  # fixtures

MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
USERFAULTFD = 323  # x86-64
UFFD = 0xAA
PROTECT = 2  # UFFDIO_REGISTER_MODE_WP
REFUSED = 30_000
PAGES = 2 * MIB
MOST_EXPORTED = 128  # objects of a call (NV_DMABUF_EXPORT_MAX_HANDLES)


class Page:
    """A page of our own that can be read; who writes to it waits, until it is let go."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory[0] = 0  # a page that is not there cannot be protected
        self.at = address(self.memory)  # type: ignore[arg-type]
        self.fd = LIBC.syscall(USERFAULTFD, os.O_CLOEXEC)
        assert self.fd >= 0, os.strerror(ctypes.get_errno())
        self._ask(0x3F, struct.pack("<QQQ", UFFD, 1, 0))  # UFFDIO_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP
        self._ask(0x00, struct.pack("<QQQQ", self.at, mmap.PAGESIZE, PROTECT, 0))

    def _ask(self, nr: int, words: bytes) -> None:
        fcntl.ioctl(self.fd, request(nr, len(words), UFFD), bytearray(words))

    def hold(self, block: bytes) -> None:
        self.memory[: len(block)] = block
        self._ask(0x06, struct.pack("<QQQ", self.at, mmap.PAGESIZE, 1))

    def let_go(self) -> None:
        self._ask(0x06, struct.pack("<QQQ", self.at, mmap.PAGESIZE, 0))


class Stalled:
    """A call whose block lies in a held page: the driver has done it, and it does not come back."""

    def __init__(self, fd: int, name: str, block: Block) -> None:
        self.page = Page()
        self.page.hold(bytes(block))
        self.block = block
        number_ = request(number(name), len(block))
        self.thread = threading.Thread(target=LIBC.ioctl, args=(fd, number_, self.page.at))
        self.thread.start()
        until(self._waits)

    def _waits(self) -> bool:
        """Whether it has come to its page: before, the driver may not have begun with it."""
        assert self.thread.is_alive(), "nothing was made to wait"
        return "handle_userfault" in Path(f"/proc/self/task/{self.thread.native_id}/stack").read_text()

    def end(self) -> int:
        """Its status."""
        self.page.let_go()
        self.thread.join()
        self.block[:] = self.page.memory[: len(self.block)]
        return self.block.get("status")


def freeing(rm: Rm, handle: int) -> Stalled:
    return Stalled(rm.ctl, "NV_ESC_RM_FREE", Block.of("NVOS00_PARAMETERS", hRoot=rm.client, hObjectOld=handle))


def free_stalled(what: str) -> Play:
    """An endless kernel runs; the free of something else does not come back."""
    rm = Rm.start()
    channel, bell = started(rm), Doorbell(rm)
    spare = started(rm)
    channel.submit(bell, ENDLESS)
    yield {"clients": [rm.client]}
    call = freeing(rm, rm.subdevice if what == "subdevice" else spare.handle)
    yield {}
    yield {"status": call.end()}


@pytest.mark.parametrize("what", ["subdevice", "channel"])
def test_a_pause_does_not_ask_for_what_is_being_freed(family: genl.DetShare, program: Programs, what: str) -> None:
    one = program(free_stalled, what)
    until(lambda: share(one.clients, 0.2) > 0)
    one.ask()
    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["vctxs"], answer["paused"], answer["failed"]) == (1, 1, 0)
    assert share(one.clients, 0.5) == 0
    assert one.ask()["status"] == 0
    family.hold_del(**of(one))
    until(lambda: share(one.clients, 0.2) > 0)


def client_stalled() -> Play:
    """Its first client's free does not come back; its second one has the same handle and works."""
    old = Rm.start(device=False)
    call = freeing(old, old.client)
    yield from again(old.client)
    yield {"status": call.end()}


def test_a_client_that_is_being_freed_does_not_hide_the_next_one(family: genl.DetShare, program: Programs) -> None:
    one = program(client_stalled)
    until(lambda: share(one.clients, 0.2) > 0)
    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["paused"], answer["failed"]) == (1, 0)
    assert share(one.clients, 0.5) == 0
    assert one.ask()["status"] == 0
    assert share(one.clients, 0.5) == 0


def reborn() -> Play:
    """Its first client is freed as if it were memory; its second one has the same handle and works."""
    old = Rm.start(device=False)
    block = Block.of("NVOS32_PARAMETERS", hRoot=old.client, function=number("NVOS32_FUNCTION_FREE"))
    block.put("data.Free.hMemory", old.client)
    block.put("data.Free.flags", number("NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED"))
    escape(old.ctl, "NV_ESC_RM_VID_HEAP_CONTROL", block)
    assert block.get("status") == 0
    yield from again(old.client)


def again(handle: int) -> Play:
    """A client of that handle, on other files, with an endless kernel."""
    rm = Rm(os.open("/dev/nvidiactl", os.O_RDWR), os.open("/dev/nvidia0", os.O_RDWR))
    assert rm.alloc("NV01_ROOT", 0, handle, root=0) == (0, handle)
    rm.client = handle
    assert rm.alloc("NV01_DEVICE_0", rm.client, rm.device, Block.of("NV0080_ALLOC_PARAMETERS"))[0] == 0
    assert rm.alloc("NV20_SUBDEVICE_0", rm.device, rm.subdevice, Block.of("NV2080_ALLOC_PARAMETERS"))[0] == 0
    channel = started(rm)
    channel.submit(Doorbell(rm), ENDLESS)
    yield {"clients": [rm.client]}


def test_a_client_that_was_freed_as_memory_is_gone(family: genl.DetShare, program: Programs) -> None:
    one = program(reborn)
    until(lambda: share(one.clients, 0.2) > 0)
    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["vctxs"], answer["paused"], answer["failed"]) == (1, 1, 0)
    assert share(one.clients, 0.5) == 0


def channel_stalled() -> Play:
    """The call that makes its channel does not come back; the channel works all the same."""
    rm = Rm.start()
    made: list[Stalled] = []
    plain = rm.alloc

    def alloc(klass: Any, parent: int, handle: int, params: bytearray | None = None, **more: Any) -> tuple[int, int]:
        if klass != "HOPPER_CHANNEL_GPFIFO_A":
            return plain(klass, parent, handle, params, **more)
        assert params is not None
        block = Block.of(
            "NVOS64_PARAMETERS",
            hRoot=rm.client,
            hObjectParent=parent,
            hObjectNew=handle,
            hClass=number(klass),
            pAllocParms=address(params),
        )
        made.append(Stalled(rm.ctl, "NV_ESC_RM_ALLOC", block))
        return 0, handle

    space = vas(rm)
    group = tsg(rm, space)
    Channel(rm, group, space=space).compute()
    bell = Doorbell(rm)
    yield {"clients": [rm.client]}
    rm.alloc = alloc  # type: ignore[method-assign]
    channel = Channel(rm, group, space=space)
    assert channel.schedule() == 0
    channel.submit(bell, ENDLESS)
    yield {}
    yield {"status": made[0].end()}


def test_a_channel_that_is_being_made_is_paused_too(family: genl.DetShare, program: Programs) -> None:
    one = program(channel_stalled)
    one.ask()
    until(lambda: share(one.clients, 0.2) > 0)
    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["paused"], answer["failed"]) == (1, 0)
    assert share(one.clients, 0.5) == 0
    assert one.ask()["status"] == 0


# ---- memory that is exported before it is known ---------------------------------------------


def exported(rm: Rm, handle: int, times: int) -> int:
    """The status of a DMA buffer of that memory, so many times."""
    block = Block.of("nv_ioctl_export_to_dma_buf_fd_t", fd=0xFFFFFFFF, hClient=rm.client)
    for name, value in (("totalObjects", times), ("numObjects", times), ("totalSize", times * PAGES)):
        block.put(name, value)
    block.put_bytes("handles", struct.pack("<I", handle) * times)
    block.put_bytes("sizes", struct.pack("<Q", PAGES) * times)
    escape(rm.gpu, "NV_ESC_EXPORT_TO_DMABUF_FD", block)
    return block.get("status")


def memory_stalled(buffers: int, times: int) -> Play:
    """It exports memory whose making does not come back. Later that is freed; another of the handle comes and goes."""
    rm = Rm.start()
    escape(rm.gpu, "NV_ESC_REGISTER_FD", Block.of("nv_ioctl_register_fd_t", ctl_fd=rm.ctl))
    attr = number("NVOS32_ATTR_LOCATION_VIDMEM") << number("NVOS32_ATTR_LOCATION_LO")
    params = Block.of("NV_MEMORY_ALLOCATION_PARAMS", owner=rm.client, size=PAGES, attr=attr)
    block = Block.of(
        "NVOS64_PARAMETERS",
        hRoot=rm.client,
        hObjectParent=rm.device,
        hObjectNew=rm.handle(),
        hClass=number("NV01_MEMORY_LOCAL_USER"),
        pAllocParms=address(params),
    )
    call = Stalled(rm.ctl, "NV_ESC_RM_ALLOC", block)
    yield {"exports": [exported(rm, rm.next, times) for _ in range(buffers)]}
    told = [call.end(), rm.free(rm.next), rm.memory(PAGES, rm.next)[0], rm.free(rm.next)]
    yield {"told": told}


def kernel_threads_in_the_module() -> list[str]:
    """The stacks of kernel threads that wait in it."""
    stacks = []
    for each in Path("/proc").glob("[0-9]*/stack"):
        with suppress(OSError):
            stack = each.read_text()
            if "[detshare]" in stack and not (each.parent / "cmdline").read_bytes():
                stacks.append(stack)
    return stacks


def test_who_keeps_its_calls_waiting_holds_up_nobodys_accounts(family: genl.DetShare, program: Programs) -> None:
    """Neither a kernel thread waits for its memory nor is a neighbour charged for what it has freed."""
    one, other = program(memory_stalled, 20, MOST_EXPORTED), program(memory_stalled, 1, 1)
    assert set(one.ready["exports"] + other.ready["exports"]) == {0}
    family.limit_set(64 * MIB, **of(other))
    assert other.ask()["told"] == [0] * 4
    (limit,) = map(row, family.limit_get())
    assert limit["used"] == PAGES
    assert not kernel_threads_in_the_module()
    family.limit_del(**of(other))
    assert one.ask()["told"] == [0] * 4


# ---- refused by the driver ------------------------------------------------------------------


def refused() -> Play:
    """Channels on a device's file, where the driver makes none, and leaves the block as it was: its status says 0."""
    rm = Rm.start()
    escape(rm.gpu, "NV_ESC_REGISTER_FD", Block.of("nv_ioctl_register_fd_t", ctl_fd=rm.ctl))
    yield {"clients": [rm.client]}
    block = Block.of(
        "NVOS64_PARAMETERS",
        hRoot=rm.client,
        hObjectParent=rm.client,
        hObjectNew=rm.handle(),
        hClass=number("HOPPER_CHANNEL_GPFIFO_A"),
    )
    told = set()
    for _ in range(REFUSED):
        try:
            escape(rm.gpu, "NV_ESC_RM_ALLOC", block)
        except OSError as error:
            told.add(error.errno)
    yield {"told": sorted(told)}


def kernel_memory() -> int:
    """Bytes of the kernel's own that nobody can take back."""
    words = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(words["SUnreclaim"].split()[0]) << 10


def test_what_the_driver_refuses_leaves_nothing_in_the_module(family: genl.DetShare, program: Programs) -> None:
    one = program(refused)
    before = kernel_memory()
    assert one.ask()["told"]
    assert kernel_memory() - before < REFUSED * 32


def elsewhere(size: int) -> Play:
    """A device that is not there, then managed memory."""
    rm = Rm.start(device=False)
    params = Block.of("NV0080_ALLOC_PARAMETERS", deviceId=31)
    wrong, _ = rm.alloc("NV01_DEVICE_0", rm.client, rm.handle(), params)
    assert rm.alloc("NV01_DEVICE_0", rm.client, rm.device, Block.of("NV0080_ALLOC_PARAMETERS"))[0] == 0
    assert rm.alloc("NV20_SUBDEVICE_0", rm.device, rm.subdevice, Block.of("NV2080_ALLOC_PARAMETERS"))[0] == 0
    uvm = Uvm(rm)
    yield {"clients": [rm.client], "wrong": wrong}
    at = 0x200000000
    found = LIBC.mmap(at, size, 3, mmap.MAP_SHARED | 0x10, uvm.fd, at)
    yield {"got": found == at}


@pytest.mark.parametrize("mib", [16, 64])
def test_managed_memory_is_paid_for_where_the_program_has_a_device(
    family: genl.DetShare, program: Programs, mib: int
) -> None:
    one = program(elsewhere, mib * MIB)
    assert one.ready["wrong"] != 0
    assert [each["gpu"] for each in vctxs(family, one.pid)] == [0]
    account = {**of(one), "gpu": 0}
    family.limit_set(32 * MIB, **account)
    assert one.ask()["got"] is (mib < 32)
    family.limit_del(**account)


def registry(rm: Rm, at: int) -> int:
    """The status of a registry write whose key's name lies there."""
    name = {"DevNodeLength": 4, "pDevNode": at}
    block = Block.of("NVOS38_PARAMETERS", hClient=rm.client, hObject=rm.client, AccessType=2, **name)
    escape(rm.ctl, "NV_ESC_RM_ACCESS_REGISTRY", block)
    return block.get("status")


def key_in_its_door() -> Play:
    """The driver copies the name of a registry key, with its lock held, out of a doorbell."""
    rm = Rm.start()
    bell = Doorbell(rm)
    channel = started(rm)
    channel.submit(bell, 1000)
    yield {"clients": [rm.client]}
    yield {"status": registry(rm, address(bell.at))}  # type: ignore[arg-type]


def test_a_shut_door_does_not_stop_the_driver(family: genl.DetShare, program: Programs) -> None:
    """While a gate is shut its program may copy from there, and all others' calls are answered."""
    one = program(key_in_its_door)
    family.hold_set(gate=True, pause=False, **of(one))
    one.go()
    until(lambda: select.select([one.socket], [], [], 0)[0], said=lambda: "the driver waits at a shut door")
    assert one.answer()["status"] == status("NV_ERR_OPERATING_SYSTEM")
    Rm.start().close()
    family.hold_del(**of(one))


def test_hooks_cannot_be_switched_off_under_the_module(family: genl.DetShare) -> None:
    """kernel.ftrace_enabled=0 would take them away, and say nothing."""
    switch = Path("/proc/sys/kernel/ftrace_enabled")
    with pytest.raises(OSError, match="busy"):
        switch.write_text("0")
    assert switch.read_text() == "1\n"
