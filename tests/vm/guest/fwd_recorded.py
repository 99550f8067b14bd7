# SPDX-License-Identifier: Apache-2.0
"""The forwarded driver, answered by the recorded runtime program, with detshare.ko on top of it."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import random
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import ioctl, row, vctxs

SCRIPT = os.environ["DETSHARE_FWD_SCRIPT"]
VIDEO_MEMORY = int(os.environ["DETSHARE_FWD_VIDEO_MEMORY"])
"""bytes of NV01_MEMORY_LOCAL_USER that the recorded program has at its end"""
PROGRAM = Path(os.environ["DETSHARE_NVCLIENT"]) / "nvreplay"
HOST = Path("/sys/kernel/debug/nvfwd/host")
MANAGED = 6
"""the recorded program's mappings of managed memory, which is refused"""
MAPPINGS, PAGES, READ_ONLY, POOL = 30, 18464, 1, 512
"""of its device files: mappings, pages, those for reading only; pages of UVM's semaphore pool, which is no device's"""
RM_FREE, RM_CONTROL, RM_ALLOC, RM_ALLOC_MEMORY = 0x29, 0x2A, 0x2B, 0x27
NOT_SUPPORTED, INVALID_ADDRESS, INVALID_ARGUMENT = 0x56, 0x1E, 0x1F


def host() -> dict[str, int]:
    """What the helper holds."""
    return {name: int(value) for name, value in (line.split() for line in HOST.read_text().splitlines())}


def held() -> tuple[int, ...]:
    now = host()
    return tuple(now[name] for name in ("handles", "maps", "pins", "waits", "descriptors"))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = held()
    assert before[:4] == (0, 0, 0, 0)
    yield
    until(lambda: held() == before)


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen([PROGRAM, SCRIPT, *options], stdout=subprocess.PIPE, text=True)


def said(program: subprocess.Popen[str], event: str) -> dict[str, Any]:
    assert program.stdout is not None
    for line in program.stdout:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == event:
            return found
    raise AssertionError(f"it ended without {event}")


@pytest.mark.usefixtures("nothing_left")
def test_the_recorded_program_is_answered_and_its_mappings_are_shared() -> None:
    before = host()
    done = subprocess.run([PROGRAM, SCRIPT, "--touch"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [line for line in lines if line["event"] == "mismatch"]
    assert len(wrong) == MANAGED
    assert all((line["name"], line["got"]) == ("mmap", -95) for line in wrong), wrong
    replayed, touched = lines[-2:]
    assert (replayed["calls"], replayed["accepted"]) == (521, 521)
    # each page of each mapping shows the host's number for it; each event file had an event
    assert touched == {"event": "touched", "maps": MAPPINGS + 1, "pages": PAGES + POOL, "wrong": 0, "ready": 9}
    after = host()
    assert after["replayed"] - before["replayed"] == 521 + MAPPINGS
    # and the host has what the program wrote to each
    assert after["pages_written"] - before["pages_written"] == PAGES - READ_ONLY
    assert after["refused"] == before["refused"]
    # one, of the module's own: whether a file is bound
    assert after["unrecorded"] - before["unrecorded"] == 1


@pytest.mark.usefixtures("nothing_left")
def test_the_module_accounts_what_the_recording_shows() -> None:
    with genl.DetShare() as family, start("--keep") as program:
        said(program, "ready")
        (found,) = vctxs(family, program.pid)
        assert found["memory_used"] == VIDEO_MEMORY
        assert (found["tsgs"], found["channels"], found["ctxshares"], found["usermodes"]) == (4, 20, 1, 2)
        assert host()["pins"] == 6  # five registrations of memory, and the pool
        program.kill()
        program.wait()
        until(lambda: not vctxs(family))


@pytest.mark.usefixtures("nothing_left")
def test_a_program_that_is_killed_leaves_nothing() -> None:
    choice = random.Random(18)
    for _ in range(20):
        with start("--keep") as program:
            time.sleep(choice.uniform(0.0, 0.6))
            program.kill()


@pytest.mark.usefixtures("nothing_left")
def test_a_program_with_everything_open_is_killed() -> None:
    with start("--keep") as program:
        said(program, "ready")
        held_now = host()
        assert held_now["handles"] > 40
        assert held_now["maps"] == MAPPINGS
        program.kill()


def kernel_log() -> str:
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout


@pytest.mark.usefixtures("nothing_left")
def test_what_is_not_known_is_refused_by_its_name() -> None:
    file = os.open("/dev/nvidiactl", os.O_RDWR)
    before = host()
    try:
        block = bytearray(32)
        struct.pack_into("<III4xQI", block, 0, 0xC1D00001, 0xC1D00001, 0x90670102, 1 << 40, 8)
        ioctl(file, RM_CONTROL, block)
        assert struct.unpack_from("<I", block, 28)[0] == NOT_SUPPORTED
        assert "NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE (0x90670102) is not forwarded" in kernel_log()
        with pytest.raises(OSError, match="Invalid argument"):
            ioctl(file, 0x39, bytearray(32))  # I2C
        with pytest.raises(OSError, match="Invalid argument"):
            ioctl(file, RM_FREE, bytearray(20))
        for size in (0, 8, 17):
            with pytest.raises(OSError, match="Invalid argument"):
                ioctl(file, RM_CONTROL, bytearray(size))
        uvm = os.open("/dev/nvidia-uvm", os.O_RDWR)
        with pytest.raises(OSError, match="Invalid argument"):
            fcntl.ioctl(uvm, 77, bytearray(64))
        with pytest.raises(OSError, match="not supported"):
            mmap.mmap(uvm, 4096)
        os.close(uvm)
    finally:
        os.close(file)
    # none of it was asked of the host
    assert host()["unrecorded"] == before["unrecorded"]


@pytest.mark.usefixtures("nothing_left")
def test_pointers_and_descriptors_that_are_none_reach_nobody() -> None:
    file = os.open("/dev/nvidiactl", os.O_RDWR)
    before = host()
    try:
        # parameters at an address that the program does not have
        block = bytearray(32)
        struct.pack_into("<III4xQI", block, 0, 1, 1, 0x2080014A, 1 << 46, 268)
        ioctl(file, RM_CONTROL, block)
        assert struct.unpack_from("<I", block, 28)[0] == INVALID_ADDRESS
        # a list that is longer than any
        params = bytearray(24)
        struct.pack_into("<I4xQQ", params, 0, 1 << 20, 4096, 4096)
        with mmap.mmap(-1, 4096) as page:
            page[:24] = bytes(params)
            struct.pack_into("<III4xQI", block, 0, 1, 1, 0x80170D, _address(page), 24)
            ioctl(file, RM_CONTROL, block)
            assert struct.unpack_from("<I", block, 28)[0] == NOT_SUPPORTED
        # memory of the program's that it does not have; the whole address space
        for limit in (4095, 2**64 - 1):
            memory = bytearray(56)
            struct.pack_into("<IIIII4xQQ", memory, 0, 1, 1, 2, 0x71, 0, 1 << 46, limit)
            ioctl(file, RM_ALLOC_MEMORY, memory)
            assert struct.unpack_from("<I", memory, 40)[0] != 0
        # a mapping's file that is none of the driver's
        arm = bytearray(56)
        struct.pack_into("<i", arm, 48, 0)
        ioctl(file, 0x4E, arm)
        assert struct.unpack_from("<I", arm, 40)[0] == INVALID_ARGUMENT
        with pytest.raises(OSError, match=r".*"):
            mmap.mmap(file, 4096)
    finally:
        os.close(file)
    after = host()
    assert (after["refused"], after["replayed"]) == (before["refused"], before["replayed"])
    # the mapping, and what the module asks by itself of a client that it does not know
    assert after["unrecorded"] - before["unrecorded"] == 5


def _address(page: mmap.mmap) -> int:
    view = ctypes.c_char.from_buffer(page)
    address = ctypes.addressof(view)
    del view
    return address


def test_hooks_that_the_forwarded_driver_lacks_are_told() -> None:
    with genl.DetShare() as family:
        status = row(family.status_get())
    missing = sorted(hook.split()[0] for hook in status["hook"] if hook.endswith("(missing)"))
    assert missing == [
        "nvidia:nvUvmInterfaceDupMemory",
        "nvidia:nvUvmInterfaceFreeDupedHandle",
        "nvidia:nv_dma_buf_dup_mem_handles",
        "nvidia:nv_dma_buf_release",
        "nvidia:nv_dma_buf_undup_mem_handles",
        "nvidia_uvm:uvm_api_migrate",
        "nvidia_uvm:uvm_api_migrate_range_group",
        "nvidia_uvm:uvm_api_prevent_migration_range_groups",
        "nvidia_uvm:uvm_api_set_range_group",
        "nvidia_uvm:uvm_api_tools_read_process_memory",
        "nvidia_uvm:uvm_api_tools_write_process_memory",
    ]
