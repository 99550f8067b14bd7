# SPDX-License-Identifier: Apache-2.0
"""What the simulated driver must do as the genuine one: statuses, trees, files, memory. All else is judged by it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vm.guest.nvsim_rm import Block, Rm, Uvm, address, escape, number, request, status, totals, truth

MIB = 1 << 20
CPU = bytes.fromhex("a65e0f4ed7d47ba25047412c142a7773")
EXTERNAL = 8  # NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED


@pytest.fixture
def rm() -> Iterator[Rm]:
    before = totals()
    client = Rm.start()
    yield client
    client.close()
    assert totals()["clients"] == before["clients"]
    assert totals()["objects"] == before["objects"]
    assert truth("used") == 0


@pytest.fixture
def other() -> Iterator[Rm]:
    client = Rm.start()
    yield client
    client.close()


def vas(rm: Rm, flags: int = 0) -> int:
    handle = rm.handle()
    params = Block.of("NV_VASPACE_ALLOCATION_PARAMETERS", flags=flags)
    assert rm.alloc("FERMI_VASPACE_A", rm.device, handle, params)[0] == 0
    return handle


def tsg(rm: Rm, space: int = 0, engine: int = 1) -> int:
    handle = rm.handle()
    params = Block.of("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", hVASpace=space, engineType=engine)
    assert rm.alloc("KEPLER_CHANNEL_GROUP_A", rm.device, handle, params)[0] == 0
    return handle


def channel(rm: Rm, group: int, share: int = 0) -> tuple[int, int]:
    assert rm.memory(4096, klass="NV01_MEMORY_SYSTEM")[0] == 0
    params = Block.of("NV_CHANNEL_ALLOC_PARAMS", gpFifoEntries=16, gpFifoOffset=0x100000, hContextShare=share)
    params.put("hUserdMemory", rm.last, 0)
    handle = rm.handle()
    return rm.alloc("HOPPER_CHANNEL_GPFIFO_A", group, handle, params)[0], handle


def klass_of(rm: Rm, handle: int) -> int | None:
    params = Block.of("NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS", hObject=handle, index=2)
    code = rm.control(rm.client, "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO", params)
    assert code in (0, status("NV_ERR_OBJECT_NOT_FOUND"))
    return params.get("data.iResult") if code == 0 else None


def in_child(work: Callable[[], int]) -> int:
    """The small number that `work` returns in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ---- objects


def test_handles_parents_and_reuse(rm: Rm) -> None:
    size = Block.of("NV2080_ALLOC_PARAMETERS")
    assert rm.alloc("NV20_SUBDEVICE_0", 0x777, 0x10, size)[0] == status("NV_ERR_OBJECT_NOT_FOUND")
    assert rm.alloc("NV20_SUBDEVICE_0", rm.client, 0x10, size)[0] == status("NV_ERR_INVALID_OBJECT_PARENT")
    assert rm.alloc("NV20_SUBDEVICE_0", rm.device, rm.client, size)[0] != 0
    assert rm.alloc("MPS_COMPUTE", rm.client, rm.device)[0] == status("NV_ERR_INSERT_DUPLICATE_NAME")
    assert rm.alloc(0xFFFF, rm.client, 0x10)[0] == status("NV_ERR_INVALID_CLASS")
    assert rm.alloc("NV01_MEMORY_LOCAL_USER", rm.device, 0x10)[0] == status("NV_ERR_INVALID_ARGUMENT")
    assert rm.alloc("MPS_COMPUTE", rm.client, 0x10)[0] == 0
    assert rm.alloc("MPS_COMPUTE", rm.client, 0x11)[0] == status("NV_ERR_STATE_IN_USE")
    assert rm.free(0x10) == 0
    assert rm.free(0x10) == 0, "freeing what is not there is no error"
    code, chosen = rm.alloc("MPS_COMPUTE", rm.client, 0)
    assert (code, chosen >> 20) == (0, 0xCAF)
    assert rm.alloc("MPS_COMPUTE", rm.client, 0x12, root=0xC1D0FFFF)[0] == status("NV_ERR_INVALID_OBJECT_HANDLE")


def test_a_device_needs_the_gpus_own_file(rm: Rm) -> None:
    os.close(rm.gpu)
    params = Block.of("NV0080_ALLOC_PARAMETERS")
    assert rm.alloc("NV01_DEVICE_0", rm.client, 0x20, params)[0] == status("NV_ERR_INSUFFICIENT_PERMISSIONS")
    rm.gpu = os.open("/dev/nvidia0", os.O_RDWR)
    assert rm.alloc("NV01_DEVICE_0", rm.client, 0x20, params)[0] == 0
    params.put("deviceId", 7)
    assert rm.alloc("NV01_DEVICE_0", rm.client, 0x21, params)[0] == status("NV_ERR_INVALID_STATE")


def test_free_takes_children_and_dependants(rm: Rm) -> None:
    space = vas(rm)
    group = tsg(rm, space)
    share = rm.handle()
    params = Block.of("NV_CTXSHARE_ALLOCATION_PARAMETERS", hVASpace=space)
    assert rm.alloc("FERMI_CONTEXT_SHARE_A", group, share, params)[0] == 0
    assert params.get("subctxId") == 63
    code, first = channel(rm, group, share)
    assert code == 0
    compute = rm.handle()
    assert rm.alloc("HOPPER_COMPUTE_A", first, compute, Block.of("NV_GR_ALLOCATION_PARAMETERS"))[0] == 0
    assert rm.free(share) == 0
    assert klass_of(rm, first) is None
    assert klass_of(rm, compute) is None
    assert klass_of(rm, group) == number("KEPLER_CHANNEL_GROUP_A")
    assert channel(rm, group)[0] == 0
    assert rm.free(space) == 0
    assert klass_of(rm, group) is None


def test_the_depth_of_a_tree_is_limited(rm: Rm) -> None:
    parent = rm.device
    for depth in range(2, 9):
        params = Block.of("NV0005_ALLOC_PARAMETERS", hParentClient=rm.client, hClass=5)
        code, handle = rm.alloc("NV01_EVENT_OS_EVENT", parent, 0x100 + depth, params, fd=rm.ctl)
        assert code == (0 if depth <= 6 else status("NV_ERR_ILLEGAL_ACTION"))
        if code:
            break
        parent = handle


# ---- files and clients


def test_a_client_belongs_to_its_file(rm: Rm, other: Rm) -> None:
    invalid = status("NV_ERR_INVALID_CLIENT")
    params = Block.of("NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS", hObject=rm.client, index=2)
    info = "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO"
    assert rm.control(rm.client, info, params) == 0
    assert rm.control(rm.client, info, params, fd=other.ctl) == invalid
    assert rm.free(rm.device, fd=other.ctl) == invalid
    assert rm.control(rm.client, 0, None, fd=other.ctl) == 0, "the null command asks for nothing"
    same = os.dup(rm.ctl)
    assert rm.control(rm.client, info, params, fd=same) == 0
    os.close(same)
    assert in_child(lambda: rm.control(rm.client, info, params)) == 0


def test_register_fd_links_once(rm: Rm, other: Rm) -> None:
    gpu = rm.open("nvidia0")
    block = Block.of("nv_ioctl_register_fd_t", ctl_fd=rm.ctl)
    escape(gpu, "NV_ESC_REGISTER_FD", block)
    params = Block.of("NV0005_ALLOC_PARAMETERS", hParentClient=rm.client, hClass=0x79)
    assert rm.alloc("NV01_EVENT_OS_EVENT", rm.subdevice, 0x30, params, fd=gpu)[0] == 0
    for fd, target in ((gpu, other.ctl), (rm.ctl, rm.ctl), (other.ctl, rm.gpu), (rm.open("nvidia0"), 9999)):
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            escape(fd, "NV_ESC_REGISTER_FD", Block.of("nv_ioctl_register_fd_t", ctl_fd=target))


def test_the_last_close_frees_a_client(rm: Rm) -> None:
    second = Rm.start()
    assert second.memory(64 * MIB)[0] == 0
    again = os.dup(second.ctl)
    second.close()
    assert truth("used") == 64 * MIB
    os.close(again)
    assert truth("used") == 0


# ---- escapes


def test_sizes_and_devices_are_exact(rm: Rm) -> None:
    block = Block.of("NVOS54_PARAMETERS", hClient=rm.client, hObject=rm.client)
    nr = number("NV_ESC_RM_CONTROL")
    for size in (0, 4, 31, 33, 64):
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            fcntl.ioctl(rm.ctl, request(nr, size), bytearray(64), True)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        fcntl.ioctl(rm.gpu, request(nr, len(block)), block, True)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        fcntl.ioctl(rm.ctl, request(0x00, 16), bytearray(16), True)
    with pytest.raises(OSError, match=os.strerror(errno.EFAULT)):
        fcntl.ioctl(rm.ctl, request(nr, len(block)), 8)
    for magic, direction in ((0, 0), (0xFF, 1), (ord("F"), 2)):
        block.put("status", 77)
        fcntl.ioctl(rm.ctl, request(nr, len(block), magic, direction), block, True)
        assert block.get("status") == 0, "only number and size count"


def test_xfer_wraps_any_escape(rm: Rm) -> None:
    inner = Block.of("NVOS00_PARAMETERS", hRoot=0xC1D0FFFF, hObjectOld=1)
    outer = Block.of("nv_ioctl_xfer_t", cmd=number("NV_ESC_RM_FREE"), size=len(inner), ptr=address(inner))
    escape(rm.ctl, "NV_ESC_IOCTL_XFER_CMD", outer)
    assert inner.get("status") == status("NV_ERR_INVALID_OBJECT_HANDLE")
    outer.put("size", 16385)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        escape(rm.ctl, "NV_ESC_IOCTL_XFER_CMD", outer)
    outer.put("cmd", number("NV_ESC_IOCTL_XFER_CMD"))
    outer.put("size", len(inner))
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        escape(rm.ctl, "NV_ESC_IOCTL_XFER_CMD", outer)


def test_the_block_comes_back_after_a_failure(rm: Rm) -> None:
    block = Block.of("nv_ioctl_rm_api_version_t")
    block.put_bytes("versionString", b"1.2.3")
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        escape(rm.ctl, "NV_ESC_CHECK_VERSION_STR", block)
    name = Path("/sys/module/nvidia/version").read_text().strip().encode()
    assert block.bytes_of("versionString").rstrip(b"\0") == name
    block.put("cmd", 0)
    escape(rm.ctl, "NV_ESC_CHECK_VERSION_STR", block)
    assert block.get("reply") == 1


def test_nested_parameters_are_read_second(rm: Rm) -> None:
    """A thread that rewrites the size between the two copies decides what is allocated, as in the real driver."""
    knob = Path("/sys/module/nvidia/parameters/race_us")
    knob.write_text("200000")
    params = Block.of("NV_MEMORY_ALLOCATION_PARAMS", owner=rm.client, size=MIB)
    offset = address(params)
    timer = threading.Timer(0.05, lambda: params.put("size", 64 * MIB))
    try:
        timer.start()
        handle = rm.handle()
        block = Block.of(
            "NVOS64_PARAMETERS", hRoot=rm.client, hObjectParent=rm.device, hObjectNew=handle, pAllocParms=offset
        )
        block.put("hClass", number("NV01_MEMORY_LOCAL_USER"))
        # ctypes lets the other thread run while the call is in the kernel
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.ioctl(rm.ctl, request(number("NV_ESC_RM_ALLOC"), len(block)), ctypes.c_void_p(address(block))) == 0
        assert block.get("status") == 0
    finally:
        timer.join()
        knob.write_text("0")
    assert params.get("size") == 64 * MIB
    assert truth("used") == 64 * MIB


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


# ---- duplicates and shares


def test_a_duplicate_keeps_memory(rm: Rm, other: Rm) -> None:
    assert rm.memory(8 * MIB, 0x40)[0] == 0
    assert other.dup(rm.client, 0x40, 0x41) == 0, "clients of one process may"
    assert other.dup(rm.client, 0x40, 0x41) == status("NV_ERR_INSERT_DUPLICATE_NAME")
    assert other.dup(rm.client, 0x99, 0x42) == status("NV_ERR_OBJECT_NOT_FOUND")
    assert other.dup(0xC1D0FFFF, 0x40, 0x42) == status("NV_ERR_INVALID_OBJECT_HANDLE")
    assert other.dup(rm.client, rm.device, 0x42) == status("NV_ERR_INVALID_ARGUMENT")
    assert truth("used") == 8 * MIB
    assert rm.free(0x40) == 0
    assert truth("used") == 8 * MIB
    assert other.free(0x41) == 0
    assert truth("used") == 0


def test_another_process_needs_a_share(rm: Rm) -> None:
    assert rm.memory(2 * MIB, 0x40)[0] == 0

    def take() -> int:
        stranger = Rm.start()
        return stranger.dup(rm.client, 0x40, 0x50)

    denied = status("NV_ERR_INSUFFICIENT_PERMISSIONS")
    assert in_child(take) == denied
    assert rm.share(0x40, "RS_SHARE_TYPE_ALL") == 0
    assert in_child(take) == 0
    assert rm.share(0x40, "RS_SHARE_TYPE_ALL", action=1) == 0
    assert in_child(take) == denied
    assert rm.share(0x40, "RS_SHARE_TYPE_OS_SECURITY_TOKEN") == 0
    assert in_child(take) == 0
    assert rm.share(0x99, "RS_SHARE_TYPE_ALL") == status("NV_ERR_OBJECT_NOT_FOUND")
    policy = bytearray(struct.pack("<IIHBB", 0, 1, number("RS_SHARE_TYPE_ALL"), 0, 0))
    assert rm.memory(2 * MIB, 0x43)[0] == 0
    assert rm.control(rm.client, "NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY", policy) == 0

    def take_inherited() -> int:
        return Rm.start().dup(rm.client, 0x43, 0x50)

    assert in_child(take_inherited) == 0


def test_memory_leaves_by_a_descriptor(rm: Rm, other: Rm) -> None:
    assert rm.memory(4 * MIB, 0x40)[0] == 0
    carrier = os.open("/dev/nvidiactl", os.O_RDWR)
    export = Block.of("NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS", fd=carrier)
    export.put("object.data.rmObject.hObject", 0x40)
    assert rm.control(rm.client, "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD", export) == 0
    assert rm.free(0x40) == 0
    assert truth("used") == 4 * MIB
    into = Block.of("NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS", fd=carrier)
    into.put("object.data.rmObject.hParent", other.device)
    into.put("object.data.rmObject.hObject", 0x60)
    assert other.control(other.client, "NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD", into) == 0
    os.close(carrier)
    assert truth("used") == 4 * MIB
    assert other.free(0x60) == 0
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


# ---- controls


def test_controls_are_checked_in_order(rm: Rm) -> None:
    group = tsg(rm)
    get = "NVA06C_CTRL_CMD_GET_TIMESLICE"
    params = Block.of("NVA06C_CTRL_TIMESLICE_PARAMS")
    assert rm.control(group, get, params) == 0
    assert params.get("timesliceUs") == 2048
    assert rm.control(group, get, bytearray(4)) == status("NV_ERR_INVALID_ARGUMENT")
    assert rm.control(group, get) == status("NV_ERR_INVALID_ARGUMENT")
    assert rm.control(0x999, get, params) == status("NV_ERR_OBJECT_NOT_FOUND")
    assert rm.control(rm.device, get, params) == status("NV_ERR_NOT_SUPPORTED")
    assert rm.control(group, 0xA06C0177, params) == status("NV_ERR_NOT_SUPPORTED")
    assert rm.control(group, get, params, client=0xC1D0FFFF) == status("NV_ERR_INVALID_CLIENT")
    params.put("timesliceUs", 1 << 40)
    assert rm.control(group, "NVA06C_CTRL_CMD_SET_TIMESLICE", params) == 0
    assert rm.control(group, get, params) == 0
    assert params.get("timesliceUs") == 1 << 40
    for level, code in ((0, 0), (2, 0), (3, status("NV_ERR_NOT_SUPPORTED"))):
        wanted = Block.of("NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS", tsgInterleaveLevel=level)
        assert rm.control(group, "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", wanted) == code


def test_rights_are_the_callers(rm: Rm) -> None:
    group = tsg(rm)

    def as_nobody() -> int:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        level = Block.of("NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS", tsgInterleaveLevel=1)
        count = Block.of("NV0000_CTRL_SYSTEM_GET_CLIENT_DATABASE_INFO_PARAMS")
        slice_us = Block.of("NVA06C_CTRL_TIMESLICE_PARAMS", timesliceUs=1000)
        denied = status("NV_ERR_INSUFFICIENT_PERMISSIONS")
        return 1 + (
            rm.control(group, "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", level) != denied
            or rm.control(rm.client, "NV0000_CTRL_CMD_SYSTEM_GET_CLIENT_DATABASE_INFO", count) != denied
            or rm.control(group, "NVA06C_CTRL_CMD_SET_TIMESLICE", slice_us) != 0
        )

    assert in_child(as_nobody) == 1
    table = bytearray(1026)
    assert rm.control(group, "NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE", table) == status("NV_ERR_NOT_SUPPORTED")


def test_channels_pause_by_list(rm: Rm, other: Rm) -> None:
    code, first = channel(rm, tsg(rm))
    assert code == 0

    def switch(off: bool, client: int, handle: int, count: int = 1) -> int:
        params = Block.of("NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS", bDisable=int(off), numChannels=count)
        params.put("hClientList", client, 0)
        params.put("hChannelList", handle, 0)
        return other.control(other.subdevice, "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS", params)

    assert switch(True, rm.client, first) == 0, "whose channels they are is not asked"
    assert switch(True, rm.client, first) == 0
    assert switch(False, rm.client, first) == 0
    assert switch(False, rm.client, first) == 0
    assert switch(True, rm.client, rm.device) == status("NV_ERR_INVALID_CHANNEL")
    for count in (0, 65):
        assert switch(True, rm.client, first, count) == status("NV_ERR_INVALID_PARAM_STRUCT")


def test_a_channel_of_uvms_runs_once_uvm_knows_it(rm: Rm) -> None:
    uvm = Uvm(rm)
    space = vas(rm, EXTERNAL)
    group = tsg(rm, space)
    code, first = channel(rm, group)
    assert code == 0
    run = Block.of("NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", bEnable=1)
    schedule = "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE"
    assert rm.control(group, schedule, run) == status("NV_ERR_INVALID_STATE")
    known = Block.of("UVM_REGISTER_CHANNEL_PARAMS", rmCtrlFd=rm.ctl, hClient=rm.client, hChannel=first)
    known.put_bytes("gpuUuid.uuid", uvm.uuid)
    assert uvm.call("UVM_REGISTER_CHANNEL", known) == status("NV_ERR_INVALID_DEVICE"), "no VA space yet"
    assert uvm.register_vas(vas(rm)) == status("NV_ERR_INVALID_FLAGS")
    assert uvm.register_vas(space) == 0
    assert uvm.call("UVM_REGISTER_CHANNEL", known) == 0
    assert uvm.call("UVM_REGISTER_CHANNEL", known) == status("NV_ERR_INVALID_CHANNEL")
    assert rm.control(group, schedule, run) == 0
    uvm.close()


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


# ---- abuse


def settle(limit_s: float) -> dict[str, int]:
    """Totals once nothing is left, or after the time has run out."""
    end = time.monotonic() + limit_s
    while (now := totals())["clients"] and time.monotonic() < end:
        time.sleep(0.01)
    return now


def test_processes_killed_in_mid_call_leave_nothing() -> None:
    knob = Path("/sys/module/nvidia/parameters/race_us")
    knob.write_text("3000")
    pids = []
    try:
        for _ in range(24):
            pid = os.fork()
            if pid == 0:
                victim = Rm.start()
                group = tsg(victim)
                while True:
                    victim.memory(MIB)
                    channel(victim, group)
                    victim.dup(victim.client, victim.last, victim.handle())
            pids.append(pid)
        time.sleep(1.5)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        knob.write_text("0")
    assert settle(5.0) == {"clients": 0, "objects": 0, "host_pages": 0}
    assert truth("used") == 0


def test_one_client_from_many_threads(rm: Rm) -> None:
    """Threads of one client free what others use; nothing but statuses may come of it."""
    seen: set[int] = set()

    def work(seed: int) -> None:
        for turn in range(60):
            handle = 0x100 + (seed * 7 + turn) % 5
            code, _ = rm.memory(MIB, handle)
            seen.add(code)
            seen.add(rm.dup(rm.client, handle, 0x200 + (seed + turn) % 5))
            seen.add(rm.free(0x100 + turn % 5))
            seen.add(rm.free(0x200 + turn % 5))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    allowed = {0, status("NV_ERR_INSERT_DUPLICATE_NAME"), status("NV_ERR_OBJECT_NOT_FOUND")}
    assert seen <= allowed
    for handle in (*range(0x100, 0x105), *range(0x200, 0x205)):
        rm.free(handle)
    assert truth("used") == 0
