# SPDX-License-Identifier: Apache-2.0
"""Memory of the simulated driver: its heap, every answer about it, mappings, unified memory."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from pathlib import Path

import pytest

from tests.patience import until
from tests.vm.guest.nvsim_rm import Block, Rm, Uvm, address, escape, number, status, truth
from tests.vm.guest.nvsim_tools import CPU, EXTERNAL, MIB, in_child, klass_of, rm, tsg, vas
from tests.vm.guest.nvsim_work import Channel, Doorbell

__all__ = ["rm"]  # fixtures


# ---- memory


def test_sizes_are_rounded_and_the_heap_counted(rm: Rm) -> None:
    pages = {name: number(f"NVOS32_ATTR_PAGE_SIZE_{name}") for name in ("DEFAULT", "4KB", "BIG", "HUGE")}
    total = 0
    for asked, page, answered, taken in (
        (1, "4KB", 4096, 65536),
        (70_000, "4KB", 73_728, 131_072),
        (1, "DEFAULT", 65_536, 65_536),
        (65_537, "BIG", 131_072, 131_072),
        (0x420000, "DEFAULT", 0x600000, 0x600000),
        (1, "HUGE", 2 * MIB, 2 * MIB),
    ):
        code, params = rm.memory(asked, page=pages[page])
        total += taken
        assert (code, params.get("size"), params.get("limit")) == (0, answered, answered - 1)
        assert truth("used") == total
    assert rm.memory(0)[0] == status("NV_ERR_INVALID_ARGUMENT")
    for size in (1 << 40, (1 << 64) - 1, (1 << 64) - 4096):
        assert rm.memory(size)[0] == status("NV_ERR_NO_MEMORY")
    assert truth("used") == total
    code, params = rm.memory(0x5EA410, klass="NV01_MEMORY_SYSTEM")
    assert (code, params.get("size")) == (0, 0x5EB000)
    assert truth("used") == total, "system memory is not the GPU's"


def test_the_heap_ends_and_remembers_its_peak(rm: Rm) -> None:
    (Path("/sys/kernel/debug/nvsim/gpu0/peak")).write_text("0")
    held = []
    while rm.memory(16 << 30)[0] == 0:
        held.append(rm.last)
    peak = truth("used")
    assert len(held) == 4  # of 81559 MiB
    assert truth("peak") == peak
    for handle in held:
        assert rm.free(handle) == 0
    assert (truth("used"), truth("peak")) == (0, peak)
    (Path("/sys/kernel/debug/nvsim/gpu0/peak")).write_text("0")
    assert truth("peak") == 0


def fb(rm: Rm, *indices: str) -> list[int]:
    """Bytes, from FB_GET_INFO_V2."""
    params = Block.of("NV2080_CTRL_FB_GET_INFO_V2_PARAMS", fbInfoListSize=len(indices))
    for at, name in enumerate(indices):
        struct.pack_into("<I", params, 4 + 8 * at, number(f"NV2080_CTRL_FB_INFO_INDEX_{name}"))
    assert rm.control(rm.subdevice, "NV2080_CTRL_CMD_FB_GET_INFO_V2", params) == 0
    return [struct.unpack_from("<I", params, 8 + 8 * at)[0] << 10 for at in range(len(indices))]


def test_every_answer_about_memory_agrees(rm: Rm) -> None:
    assert rm.memory(48 * MIB)[0] == 0
    total, free, ram = fb(rm, "HEAP_SIZE", "HEAP_FREE", "RAM_SIZE")
    assert total == ram == 81559 * MIB
    assert total - free == truth("used") == 48 * MIB
    heap = Block.of("NVOS32_PARAMETERS", hRoot=rm.client, hObjectParent=rm.device)
    heap.put("function", number("NVOS32_FUNCTION_INFO"))
    escape(rm.ctl, "NV_ESC_RM_VID_HEAP_CONTROL", heap)
    assert (heap.get("status"), heap.get("total"), heap.get("free")) == (0, total, free)
    pairs = bytearray(struct.pack("<II", number("NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE"), 0))
    old = Block.of("NV2080_CTRL_FB_GET_INFO_PARAMS", fbInfoListSize=1, fbInfoList=address(pairs))
    assert rm.control(rm.subdevice, number("NV2080_CTRL_CMD_FB_GET_INFO"), old) == 0
    assert struct.unpack("<II", pairs)[1] << 10 == free
    params = Block.of("NV2080_CTRL_GPU_GET_PID_INFO_PARAMS", pidInfoListCount=1)
    offset = len(params) - 14400
    struct.pack_into("<II", params, offset, os.getpid(), 0)
    assert rm.control(rm.subdevice, "NV2080_CTRL_CMD_GPU_GET_PID_INFO", params) == 0
    assert struct.unpack_from("<Q", params, offset + 16)[0] == 48 * MIB


def test_vid_heap_allocates_and_frees(rm: Rm) -> None:
    for function, arm in (("ALLOC_SIZE", "AllocSize"), ("ALLOC_SIZE_RANGE", "AllocSizeRange")):
        heap = Block.of("NVOS32_PARAMETERS", hRoot=rm.client, hObjectParent=rm.device)
        heap.put("function", number(f"NVOS32_FUNCTION_{function}"))
        heap.put(f"data.{arm}.owner", rm.client)
        heap.put(f"data.{arm}.size", 3 * MIB)
        escape(rm.ctl, "NV_ESC_RM_VID_HEAP_CONTROL", heap)
        assert (heap.get("status"), heap.get(f"data.{arm}.size")) == (0, 4 * MIB)
        handle = heap.get(f"data.{arm}.hMemory")
        assert klass_of(rm, handle) == number("NV01_MEMORY_LOCAL_USER")
        assert truth("used") == 4 * MIB
        heap = Block.of("NVOS32_PARAMETERS", hRoot=rm.client, hObjectParent=rm.device)
        heap.put("function", number("NVOS32_FUNCTION_FREE"))
        heap.put("data.Free.hMemory", handle)
        escape(rm.ctl, "NV_ESC_RM_VID_HEAP_CONTROL", heap)
        assert heap.get("status") == status("NV_ERR_INVALID_ARGUMENT"), "the flag that names the handle is missing"
        heap.put("data.Free.flags", number("NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED"))
        escape(rm.ctl, "NV_ESC_RM_VID_HEAP_CONTROL", heap)
        assert heap.get("status") == 0
        assert truth("used") == 0


# ---- mappings


def test_a_file_is_armed_for_one_mapping(rm: Rm) -> None:
    assert rm.memory(2 * MIB, 0x40)[0] == 0
    gpu, ctl = rm.open("nvidia0"), rm.open("nvidiactl")
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        mmap.mmap(gpu, 2 * MIB)
    assert rm.map(0x40, 2 * MIB, ctl) == status("NV_ERR_INVALID_ARGUMENT"), "device memory is the GPU file's"
    assert rm.map(0x40, 4 * MIB, gpu) == status("NV_ERR_INVALID_LIMIT")
    assert rm.map(0x99, 2 * MIB, gpu) == status("NV_ERR_OBJECT_NOT_FOUND")
    assert rm.map(0x40, 2 * MIB, gpu) == 0
    assert rm.map(0x40, 2 * MIB, gpu) == status("NV_ERR_STATE_IN_USE")
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        mmap.mmap(gpu, MIB)
    second = rm.open("nvidia0")
    assert rm.map(0x40, 4096, second, offset=MIB) == 0
    with mmap.mmap(gpu, 2 * MIB) as whole, mmap.mmap(second, 4096) as part:
        whole[MIB : MIB + 5] = b"hello"
        assert part[:5] == b"hello"
        assert rm.free(0x40) == 0
        assert truth("used") == 0, "a mapping does not keep device memory"
        assert whole[MIB : MIB + 5] == b"hello"


def test_system_memory_is_the_control_files(rm: Rm) -> None:
    assert rm.memory(8192, 0x40, klass="NV01_MEMORY_SYSTEM")[0] == 0
    assert rm.map(0x40, 8192, rm.open("nvidia0")) == status("NV_ERR_INVALID_ARGUMENT")
    files = [rm.open("nvidiactl") for _ in range(2)]
    assert [rm.map(0x40, 8192, fd) for fd in files] == [0, 0]
    with pytest.raises(OSError, match=os.strerror(errno.ERANGE)):
        mmap.mmap(files[0], 12288)
    with mmap.mmap(files[0], 8192) as one, mmap.mmap(files[1], 8192) as two:
        one[4096:4100] = b"same"
        assert two[4096:4100] == b"same"

    def from_a_child() -> int:
        return rm.map(0x40, 8192, os.open("/dev/nvidiactl", os.O_RDWR))

    assert in_child(from_a_child) == status("NV_ERR_INVALID_CLIENT"), "only the client's own process maps"


# ---- unified memory


def test_uvm_holds_external_memory(rm: Rm) -> None:
    uvm = Uvm(rm)
    assert uvm.register_vas(vas(rm, EXTERNAL)) == 0
    assert rm.memory(4 * MIB, 0x40)[0] == 0
    base = 0x7F0000000000
    assert uvm.map(base, 4 * MIB, 0x40) == status("NV_ERR_INVALID_ADDRESS")
    assert uvm.external(base, 4 * MIB) == 0
    assert uvm.external(base + 2 * MIB, 4 * MIB) == status("NV_ERR_UVM_ADDRESS_IN_USE")
    assert uvm.map(base, 8 * MIB, 0x40) == status("NV_ERR_INVALID_ADDRESS")
    assert uvm.map(base, 4 * MIB, 0x99) == status("NV_ERR_OBJECT_NOT_FOUND")
    assert uvm.map(base, 4 * MIB, 0x40) == 0
    assert rm.free(0x40) == 0
    assert truth("used") == 4 * MIB
    assert uvm.free(base, 4 * MIB) == 0
    assert truth("used") == 0
    uvm.close()


def test_managed_memory_moves_to_the_gpu(rm: Rm) -> None:
    uvm = Uvm(rm)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    base, length, fixed = 0x200000000, 8 * MIB, mmap.MAP_SHARED | 0x10
    failed = ctypes.c_void_p(-1).value
    assert libc.mmap(base, length, 3, fixed, uvm.fd, base + 4096) == failed, "the offset is the address"
    assert libc.mmap(base, length, 1, fixed, uvm.fd, base) == failed, "reading only is not offered"
    assert libc.mmap(base, length, 3, fixed, uvm.fd, base) == base
    ctypes.memmove(base + 5 * MIB, b"managed", 7)
    assert truth("used") == 0
    assert uvm.migrate(base, length) == 0
    assert truth("used") == length
    assert uvm.migrate(base, length) == 0
    assert truth("used") == length
    assert ctypes.string_at(base + 5 * MIB, 7) == b"managed"
    assert uvm.migrate(base, 2 * MIB, CPU) == 0
    assert truth("used") == length - 2 * MIB
    assert uvm.migrate(base, 2 * length) == status("NV_ERR_INVALID_ADDRESS")
    assert uvm.migrate(base, length) == 0
    assert libc.munmap(base, 4 * MIB) == 0
    assert truth("used") == 4 * MIB
    assert ctypes.string_at(base + 5 * MIB, 7) == b"managed"
    assert libc.munmap(base + 4 * MIB, 4 * MIB) == 0
    assert truth("used") == 0
    uvm.close()


def test_the_gpus_touch_takes_memory_for_managed_ranges(rm: Rm) -> None:
    uvm = Uvm(rm)
    space = vas(rm, EXTERNAL)
    assert uvm.register_vas(space) == 0
    base, length = 0x280000000, 8 * MIB
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert libc.mmap(base, length, 3, mmap.MAP_SHARED | 0x10, uvm.fd, base) == base
    channel, bell = Channel(rm, tsg(rm, space), space=space), Doorbell(rm)
    known = Block.of("UVM_REGISTER_CHANNEL_PARAMS", rmCtrlFd=rm.ctl, hClient=rm.client, hChannel=channel.handle)
    known.put_bytes("gpuUuid.uuid", uvm.uuid)
    assert uvm.call("UVM_REGISTER_CHANNEL", known) == 0
    assert channel.schedule() == 0

    def touch(at: int) -> None:
        channel.entry(channel.release_words(at, 77))
        bell.kick(channel.token)
        until(lambda: ctypes.c_uint32.from_address(at).value == 77)

    touch(base + 3 * MIB)
    assert until(lambda: truth("used") == 2 * MIB), "the block of 2 MiB around it"
    touch(base + 3 * MIB + 4096)
    touch(base + 7 * MIB)
    until(lambda: truth("used") == 4 * MIB)
    assert uvm.migrate(base, length, CPU) == 0
    assert truth("used") == 0
    touch(base + 2 * MIB)
    assert until(lambda: truth("used") == 2 * MIB), "again, after it had left"
    assert libc.munmap(base, length) == 0
    assert truth("used") == 0
    bell.close()
    channel.close()
    uvm.close()


def test_managed_memory_cannot_exceed_the_heap(rm: Rm) -> None:
    uvm = Uvm(rm)
    base, length = 0x10000000000, 128 << 30
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    assert libc.mmap(base, length, 3, mmap.MAP_SHARED | 0x10, uvm.fd, base) == base
    assert uvm.migrate(base, length) == status("NV_ERR_NO_MEMORY")
    assert truth("used") == 0
    libc.munmap(ctypes.c_void_p(base), ctypes.c_size_t(length))
    uvm.close()
