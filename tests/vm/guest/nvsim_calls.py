# SPDX-License-Identifier: Apache-2.0
"""Calls of the simulated driver: how they are wrapped, what they check, what a killed or crowded caller leaves."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.patience import comes
from tests.vm.guest.nvsim_rm import Block, Rm, Uvm, address, escape, number, request, status, totals, truth
from tests.vm.guest.nvsim_tools import EXTERNAL, MIB, channel, in_child, other, rm, tsg, vas

__all__ = ["other", "rm"]  # fixtures


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


# ---- abuse


def settle() -> dict[str, int]:
    """Totals once nothing is left, or when nothing happens any more."""
    comes(lambda: not totals()["clients"])
    return totals()


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
    assert settle() == {"clients": 0, "objects": 0, "host_pages": 0}
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
