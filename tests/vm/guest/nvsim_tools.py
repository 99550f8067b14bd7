# SPDX-License-Identifier: Apache-2.0
"""What the tests of the simulated driver share: clients that must leave nothing behind, and objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.vm.guest.nvsim_rm import Block, Rm, status, totals, truth

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


def device_of_no_parameters() -> Rm:
    """It says of no GPU that its device is on it: so it is on the first."""
    rm = Rm.start(device=False)
    assert rm.alloc_object("NV01_DEVICE_0", rm.client, rm.device) == 0
    assert rm.alloc_object("NV20_SUBDEVICE_0", rm.device, rm.subdevice) == 0
    return rm


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


def channel(rm: Rm, group: int, share: int = 0, userd: int = 0) -> tuple[int, int]:
    if not userd:
        assert rm.memory(4096, klass="NV01_MEMORY_SYSTEM")[0] == 0
    params = Block.of("NV_CHANNEL_ALLOC_PARAMS", gpFifoEntries=16, gpFifoOffset=0x100000, hContextShare=share)
    params.put("hUserdMemory", userd or rm.last, 0)
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
