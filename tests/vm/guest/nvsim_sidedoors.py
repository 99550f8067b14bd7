# SPDX-License-Identifier: Apache-2.0
"""Ways to a doorbell other than its CPU mapping, each of which the driver has: they ring, and the simulator says so."""

from __future__ import annotations

import ctypes
import mmap
import os

from tests.patience import until
from tests.vm.guest.nvsim_rm import Block, Rm, Uvm, address, escape, status, version
from tests.vm.guest.nvsim_tools import EXTERNAL, in_child, other, rm, tsg, vas
from tests.vm.guest.nvsim_work import DOORBELL_SIZE, ENDLESS, MS, SIM, Channel, Doorbell, map_dma, of, order, usermode

__all__ = ["other", "rm"]  # fixtures

BAR0_USERMODE = 0xBB0000


def rings_by_gpu(ringer: Channel, bell: Doorbell, va: int, target: Channel) -> bool:
    """Whether a store by `ringer`'s methods to a GPU address starts what `target` has in its ring."""
    target.queue(MS)
    ringer.entry(ringer.release_words(va + SIM["USERMODE_DOORBELL"], target.token))
    bell.kick(ringer.token)
    return target.wait(1.0)


def two_channels(rm: Rm) -> tuple[Channel, Channel, Doorbell]:
    ringer, target, bell = Channel(rm), Channel(rm), Doorbell(rm)
    assert ringer.schedule() == target.schedule() == 0
    return ringer, target, bell


def test_a_doorbell_in_gpu_memory_is_rung_by_the_gpu(rm: Rm) -> None:
    ringer, target, bell = two_channels(rm)
    code, _ = map_dma(rm, ringer.space, usermode(rm), DOORBELL_SIZE)
    assert code == status("NV_ERR_INVALID_OBJECT_HANDLE"), "registers of BAR0 cannot be mapped there"
    code, va = map_dma(rm, ringer.space, usermode(rm, bar1=True), DOORBELL_SIZE)
    assert code == 0
    order("revoke", 1)
    assert rings_by_gpu(ringer, bell, va, target), "no page table of a process has a part in it"
    ways = {row["way"]: row["rings"] for row in of(rm, "kicks")}
    assert ways == {"cpu": "1", "gpu": "1"}
    assert (ringer.row()["rings"], target.row()["rings"]) == ("1", "1")
    bell.close()
    ringer.close()
    target.close()


def test_uvm_maps_a_doorbell_too(rm: Rm) -> None:
    uvm = Uvm(rm)
    space = vas(rm, EXTERNAL)
    assert uvm.register_vas(space) == 0
    base = 0x3_0000_0000
    assert uvm.external(base, DOORBELL_SIZE) == 0
    assert uvm.map(base, DOORBELL_SIZE, usermode(rm)) == status("NV_ERR_INVALID_OBJECT_HANDLE")
    assert uvm.map(base, DOORBELL_SIZE, usermode(rm, bar1=True)) == 0
    assert uvm.free(base, DOORBELL_SIZE) == 0
    uvm.close()


def os_descriptor(rm: Rm, at: int, length: int) -> tuple[int, int]:
    """(status, handle) of memory made of what lies at an address of this process."""
    handle = rm.handle()
    params = Block.of("NV_OS_DESC_MEMORY_ALLOCATION_PARAMS", descriptor=at, limit=length - 1)
    return rm.alloc("NV01_MEMORY_SYSTEM_OS_DESCRIPTOR", rm.device, handle, params)[0], handle


def test_an_os_descriptor_over_a_doorbell_rings(rm: Rm) -> None:
    ringer, target, bell = two_channels(rm)
    at = ctypes.addressof(ctypes.c_char.from_buffer(bell.at))
    order("revoke", 1)
    assert os_descriptor(rm, at, DOORBELL_SIZE)[0] == status("NV_ERR_INVALID_ADDRESS"), "nothing there while revoked"
    _ = bell.at[0]
    code, memory = os_descriptor(rm, at, DOORBELL_SIZE)
    assert code == 0
    code, va = map_dma(rm, ringer.space, memory, DOORBELL_SIZE)
    assert code == 0
    order("revoke", 1)
    assert rings_by_gpu(ringer, bell, va, target), "once made it needs the page tables no more"
    assert {row["way"]: row["rings"] for row in of(rm, "kicks")} == {"cpu": "1", "descriptor": "1"}
    assert rm.map(memory, DOORBELL_SIZE, rm.open("nvidia0")) == status("NV_ERR_NOT_SUPPORTED")
    bell.close()
    ringer.close()
    target.close()


def test_an_os_descriptor_over_mapped_device_memory(rm: Rm) -> None:
    """Its pages are the memory's own, and stay as long as it needs them."""
    assert rm.memory(65536)[0] == 0
    file = rm.open("nvidia0")
    assert rm.map(rm.last, 65536, file) == 0
    window = mmap.mmap(file, 65536)
    window[:4] = b"here"
    code, memory = os_descriptor(rm, ctypes.addressof(ctypes.c_char.from_buffer(window)), 65536)
    assert code == 0
    window.close()
    assert rm.free(rm.last) == 0
    second = rm.open("nvidiactl")
    assert rm.map(memory, 65536, second) == 0
    assert mmap.mmap(second, 65536)[:4] == b"here"


def test_all_registers_hold_the_doorbell_for_root(rm: Rm) -> None:
    channel = Channel(rm)
    assert channel.schedule() == 0
    everything = rm.handle()
    assert rm.alloc("NV01_MEMORY_LOCAL_PRIVILEGED", rm.device, everything)[0] == 0
    assert rm.map(everything, DOORBELL_SIZE, rm.open("nvidia0")) == status("NV_ERR_INVALID_LIMIT")
    file = rm.open("nvidia0")

    for device in ("nvidiactl", "nvidia0"):
        os.chmod(f"/dev/{device}", 0o666)

    def unprivileged() -> int:
        os.setuid(65534)
        own = Rm.start()
        handle = own.handle()
        assert own.alloc("NV01_MEMORY_LOCAL_PRIVILEGED", own.device, handle)[0] == 0
        code = own.map(handle, DOORBELL_SIZE, own.open("nvidia0"), BAR0_USERMODE)
        return int(code == status("NV_ERR_PROTECTION_FAULT"))

    assert in_child(unprivileged) == 1, "who is not root has the object, and no use of it"
    assert rm.map(everything, DOORBELL_SIZE, file, BAR0_USERMODE) == 0
    bell = Doorbell(rm, fd=file)
    channel.submit(bell, MS)
    assert channel.wait()
    code, _ = map_dma(rm, channel.space, everything, DOORBELL_SIZE)
    assert code == status("NV_ERR_INVALID_OBJECT_HANDLE")
    bell.close()
    channel.close()


# ---- orders about other clients' channels


def legacy(command: int) -> int:
    return command | 0x8000


def slice_of(rm: Rm, group: int) -> int:
    params = Block.of("NVA06C_CTRL_TIMESLICE_PARAMS")
    assert rm.control(group, "NVA06C_CTRL_CMD_GET_TIMESLICE", params) == 0
    return params.get("timesliceUs")


def test_a_legacy_command_steers_anybodys_objects(rm: Rm, other: Rm) -> None:
    group = tsg(rm)
    params = Block.of("NVA06C_CTRL_TIMESLICE_PARAMS", timesliceUs=77)
    plain = 0xA06C0103
    assert other.control(group, plain, params, client=rm.client) == status("NV_ERR_INVALID_CLIENT")
    assert slice_of(rm, group) == 2048
    assert other.control(group, legacy(plain), params, client=rm.client) == 0
    assert slice_of(rm, group) == 77
    assert other.control(group, legacy(0xA06C01FF), params, client=rm.client) == status("NV_ERR_NOT_SUPPORTED")


def test_a_binary_object_passes_commands_on(rm: Rm, other: Rm) -> None:
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    handle = other.handle()
    assert other.alloc("NV2081_BINAPI", other.subdevice, handle, bytearray(4))[0] == 0
    params = Block.of("NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS", bDisable=1, numChannels=1)
    params.put("hClientList", rm.client, 0)
    params.put("hChannelList", channel.handle, 0)
    assert other.control(handle, 0x2081110B, params) == 0
    channel.submit(bell, MS)
    assert not channel.wait(0.1)
    assert channel.row()["off"] == "1"
    params.put("bDisable", 0)
    assert other.control(handle, 0x2080110B, params) == 0
    assert channel.wait()
    assert other.control(handle, 0x2081FF0B, params) == status("NV_ERR_NOT_SUPPORTED")
    bell.close()
    channel.close()


def test_idle_channels_takes_anybodys_off(rm: Rm, other: Rm) -> None:
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    channel.submit(bell, ENDLESS)
    until(channel.moves)
    clients, channels = bytearray(4), bytearray(4)
    clients[:] = rm.client.to_bytes(4, "little")
    channels[:] = channel.handle.to_bytes(4, "little")

    def idle(timeout_us: int) -> int:
        block = Block.of(
            "NVOS30_PARAMETERS", hClient=other.client, hDevice=other.device, numChannels=1, timeout=timeout_us,
            phClients=address(clients), phChannels=address(channels),
        )  # fmt: skip
        escape(other.ctl, "NV_ESC_RM_IDLE_CHANNELS", block)
        return block.get("status")

    before = int(channel.row()["preempts"])
    assert idle(1000) == status("NV_ERR_TIMEOUT")
    channel.release()
    assert idle(900_000) == 0
    assert channel.wait()
    assert int(channel.row()["preempts"]) == before, "an idle channel is no preempted TSG"
    params = Block.of("NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS", numChannels=1, timeout=1000)
    params.put("hChannels", channel.handle, 0)
    command = "NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS"
    assert rm.control(rm.device, command, params) == 0
    assert other.control(other.device, command, params) == status("NV_ERR_INVALID_CHANNEL"), "names the asker's own"
    bell.close()
    channel.close()


def test_questions_whether_a_channel_is_idle_are_answered_as_by_an_h100(rm: Rm) -> None:
    """Measured there: docs/how/module-scheduling.md."""
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    query, check, idle, busy = 2, 3, 0, status("NV_ERR_TIMEOUT")

    def ask(behaviour: int, wait_us: int) -> int:
        params = Block.of(
            "NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS", numChannels=1, flags=behaviour | 5 << 8, timeout=wait_us
        )
        params.put("hChannels", channel.handle, 0)
        return rm.control(rm.device, "NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS", params)

    assert (ask(check, 400), ask(query, 400)) == (idle, idle)
    assert (ask(check, 1), ask(query, 100)) == (busy, busy), "nothing is looked at in so short a time"
    channel.submit(bell, ENDLESS)
    until(channel.moves)
    before = int(channel.row()["preempts"])
    assert (ask(check, 400), ask(query, 400)) == (busy, idle), "one looks at what runs, one at what was fetched"
    assert int(channel.row()["preempts"]) == before, "a question takes nothing off"
    channel.release()
    assert channel.wait()
    assert ask(check, 400_000) == idle
    bell.close()
    channel.close()


def test_numbers_of_anybodys_channels_are_told(rm: Rm, other: Rm) -> None:
    channel = Channel(rm)
    if version().startswith("550"):
        # 570 has them first
        for command in (0x20801123, 0x20801124):
            assert other.control(other.subdevice, command, bytearray(64)) == status("NV_ERR_NOT_SUPPORTED")
        channel.close()
        return
    info = Block.of("NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS", hClient=rm.client)
    info.put("hChannelOrTsg", channel.group)
    assert other.control(other.subdevice, 0x20801123, info) == 0
    assert (info.get("numChannels"), info.get("tsgId") > 0) == (1, True)
    ids = Block.of("NV2080_CTRL_FIFO_QUERY_CHANNEL_UNIQUE_ID_PARAMS", numChannels=1)
    ids.put("hClients", rm.client, 0)
    ids.put("hChannels", channel.handle, 0)
    assert other.control(other.subdevice, 0x20801124, ids) == 0
    first = info.bytes_of("channelUniqueID")[:4]
    assert ids.bytes_of("channelUniqueIDs")[:4] == first != bytes(4)
    ids.put("hChannels", channel.group, 0)
    assert other.control(other.subdevice, 0x20801124, ids) == status("NV_ERR_INVALID_CHANNEL")
    channel.close()
