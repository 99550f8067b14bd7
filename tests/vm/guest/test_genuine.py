# SPDX-License-Identifier: Apache-2.0
"""The genuine driver on fake GPUs answers on its control device."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.tools.machine import driver_version

GPUS = int(os.environ["DETSHARE_VM_GPUS"])
BRANCH = os.environ["DETSHARE_VM_DRIVER"].removeprefix("nvidia-")

CHECK_VERSION_STR, RM_ALLOC, RM_FREE = 210, 0x2B, 0x29
NV01_ROOT_CLIENT, NV01_DEVICE_0 = 0x41, 0x80


def ioctl(file: int, number: int, block: bytearray) -> None:
    fcntl.ioctl(file, (3 << 30) | (len(block) << 16) | (ord("F") << 8) | number, block)


@pytest.fixture
def control() -> Iterator[int]:
    file = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
    yield file
    os.close(file)


def test_version_is_that_of_the_branch(control: int) -> None:
    block = bytearray(72)
    block[0] = ord("2")  # ask only, do not compare
    ioctl(control, CHECK_VERSION_STR, block)
    text = bytes(block[8:]).split(b"\0")[0].decode()
    assert text.split(".")[0] == BRANCH
    assert driver_version() == f"{text} open"


def test_clients_are_made_and_freed(control: int) -> None:
    block = bytearray(48)
    struct.pack_into("<I", block, 12, NV01_ROOT_CLIENT)
    ioctl(control, RM_ALLOC, block)
    client, status = struct.unpack_from("<I", block, 8)[0], struct.unpack_from("<I", block, 40)[0]
    assert status == 0
    assert client >> 20 == 0xC1D
    block = bytearray(struct.pack("<4I", client, client, client, 0))
    ioctl(control, RM_FREE, block)
    assert struct.unpack_from("<I", block, 12)[0] == 0


def test_all_gpus_are_listed_and_none_can_be_opened() -> None:
    assert len(list(Path("/proc/driver/nvidia/gpus").iterdir())) == GPUS
    for number in range(GPUS):
        with pytest.raises(OSError, match="Input/output error"):
            os.open(f"/dev/nvidia{number}", os.O_RDWR)
    assert not Path(f"/dev/nvidia{GPUS}").exists()


def test_uvm_answers() -> None:
    with open("/dev/nvidia-uvm", "r+b", buffering=0) as file:
        block = bytearray(16)
        fcntl.ioctl(file, 0x30000001, block)  # UVM_INITIALIZE
        assert struct.unpack_from("<I", block, 8)[0] == 0


def test_driver_can_be_removed_and_inserted_again() -> None:
    subprocess.run(["vm-load", "-r", "driver"], check=True)
    assert not Path("/sys/module/nvidia").exists()
    subprocess.run(["vm-load", "driver"], check=True)
    assert Path("/sys/module/nvidia_uvm").exists()
    os.close(os.open("/dev/nvidiactl", os.O_RDWR))
