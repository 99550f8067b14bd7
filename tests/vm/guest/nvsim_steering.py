# SPDX-License-Identifier: Apache-2.0
"""What steers work on the simulated GPU, from both sides: orders that act, and tenants that undo them."""

from __future__ import annotations

import os
import time

from tests.patience import until
from tests.vm.guest.nvsim_rm import Block, Rm, number, status
from tests.vm.guest.nvsim_tools import in_child, other, rm, tsg, vas
from tests.vm.guest.nvsim_work import ENDLESS, MS, Channel, Doorbell, table

__all__ = ["other", "rm"]  # fixtures

WFI, CTA, CILP = 0, 1, 2
STATIC = 1


def gpu_ms(channel: Channel) -> float:
    return int(channel.row()["gpu_time_us"]) / 1000


def set_slice(channel: Channel, us: int) -> int:
    return channel.rm.control(
        channel.group, "NVA06C_CTRL_CMD_SET_TIMESLICE", Block.of("NVA06C_CTRL_TIMESLICE_PARAMS", timesliceUs=us)
    )


def level(channel: Channel, wanted: int) -> int:
    params = Block.of("NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS", tsgInterleaveLevel=wanted)
    return channel.rm.control(channel.group, "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", params)


def preemption(channel: Channel, mode: int) -> int:
    params = Block.of("NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS", flags=1, hChannel=channel.group)
    params.put("cilpPreemptMode", mode)
    return channel.rm.control(channel.rm.subdevice, "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE", params)


def running(*clients: Rm) -> tuple[list[Channel], Doorbell]:
    """A channel of each client, scheduled, and one doorbell for all."""
    channels = [Channel(client) for client in clients]
    assert all(channel.schedule() == 0 for channel in channels)
    return channels, Doorbell(clients[0])


def close(channels: list[Channel], bell: Doorbell) -> None:
    for channel in channels:
        channel.release()
        channel.close()
    bell.close()


def test_a_kernel_of_a_context_that_waits_for_idle_keeps_the_gpu(rm: Rm, other: Rm) -> None:
    (long, short), bell = running(rm, other)
    for mode, patience in ((CILP, 5.0), (WFI, 0.15), (CTA, 5.0)):
        assert preemption(long, mode) == 0
        long.submit(bell, ENDLESS)
        until(lambda: long.moves(0.005))
        short.submit(bell, MS)
        assert short.wait(patience) == (mode != WFI), f"mode {mode}"
        if mode == WFI:
            preempt = Block.of("NVA06C_CTRL_PREEMPT_PARAMS", bWait=1)
            assert rm.control(long.group, "NVA06C_CTRL_CMD_PREEMPT", preempt) == 0
            assert long.disable(True) == 0
            assert long.moves(0.02), "neither preemption nor a pause takes it off"
            assert long.disable(False) == 0
        long.release()
        assert long.wait()
        assert short.wait()
    assert preemption(long, 3) == status("NV_ERR_INVALID_ARGUMENT")
    close([long, short], bell)


def test_a_share_of_the_sms_makes_kernels_longer(rm: Rm) -> None:
    space = vas(rm)
    group = tsg(rm, space)
    share = rm.handle()
    params = Block.of("NV_CTXSHARE_ALLOCATION_PARAMETERS", hVASpace=space)
    assert rm.alloc("FERMI_CONTEXT_SHARE_A", group, share, params)[0] == 0
    channel, bell = Channel(rm, group, share=share, space=space), Doorbell(rm)
    mode = Block.of("NV0090_CTRL_TPC_PARTITION_MODE_PARAMS", mode=STATIC)
    command = "NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE"
    assert rm.control(group, command, mode) == status("NV_ERR_OBJECT_NOT_FOUND"), "no context yet"
    channel.compute()
    assert channel.schedule() == 0

    def took() -> float:
        before = gpu_ms(channel)
        channel.submit(bell, 20 * MS)
        assert channel.wait()
        return gpu_ms(channel) - before

    assert took() < 30
    assert rm.control(group, command, mode) == 0
    seen = Block.of("NV0090_CTRL_TPC_PARTITION_MODE_PARAMS")
    assert rm.control(group, "NV0090_CTRL_CMD_GET_TPC_PARTITION_MODE", seen) == 0
    assert seen.get("mode") == STATIC
    assert took() < 30, "a mode alone takes nothing away"
    half = bytearray(1026)
    half[:2] = (33).to_bytes(2, "little")
    code = rm.control(share, "NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE", half)
    assert code == status("NV_ERR_INSUFFICIENT_PERMISSIONS"), "the table is the kernel's alone"
    # by the firmware's own door it works all the same, and shows what the kernel's call would do
    assert rm.control(share, 0x90678102, half) == 0
    assert 38 < took() < 60, "33 of 66 TPCs: twice as long"
    mode.put("mode", 0)
    assert rm.control(group, command, mode) == 0
    assert took() < 30
    mode.put("mode", STATIC)
    device = Block.of("NV0080_CTRL_GR_TPC_PARTITION_MODE_PARAMS", hChannelGroup=group, mode=STATIC)
    assert rm.control(rm.device, "NV0080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE", device) == 0
    assert 38 < took() < 60, "the table was kept"
    half[:2] = (67).to_bytes(2, "little")
    assert rm.control(share, 0x90678102, half) == status("NV_ERR_INVALID_ARGUMENT")
    bell.close()
    channel.close()


def test_the_masks_of_processors_agree_with_their_number(rm: Rm) -> None:
    gpcs = Block.of("NV2080_CTRL_GR_GET_GPC_MASK_PARAMS")
    assert rm.control(rm.subdevice, "NV2080_CTRL_CMD_GR_GET_GPC_MASK", gpcs) == 0
    count = 0
    for gpc in range(32):
        tpcs = Block.of("NV2080_CTRL_GR_GET_TPC_MASK_PARAMS", gpcId=gpc)
        code = rm.control(rm.subdevice, "NV2080_CTRL_CMD_GR_GET_TPC_MASK", tpcs)
        assert (code == 0) == bool(gpcs.get("gpcMask") >> gpc & 1)
        count += tpcs.get("tpcMask").bit_count()
    assert count * 2 == 132


def test_properties_of_a_channel_are_its_groups_slice(rm: Rm, other: Rm) -> None:
    (mine, theirs), bell = running(rm, other)
    command = "NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES"

    def put(property_: int, value: int) -> int:
        params = Block.of("NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_PARAMS", hChannel=mine.handle, property=property_)
        params.put("value", value)
        return rm.control(rm.device, command, params)

    assert put(0, 5000) == 0
    assert mine.row()["slice_us"] == "5000"
    assert put(9, 1) == status("NV_ERR_NOT_SUPPORTED")
    mine.submit(bell, ENDLESS)
    until(mine.moves)
    assert put(2, 1) == 0
    theirs.submit(bell, MS)
    assert not theirs.wait(0.2), "without a slice it never gives way"
    assert put(2, 0) == 0
    assert mine.row()["endless"] == "1", "whatever its value"
    assert not theirs.wait(0.2)
    assert put(0, 5000) == 0
    assert theirs.wait(), "another slice ends it"
    stolen = Block.of("NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_PARAMS", hChannel=mine.memory)
    assert rm.control(rm.device, command, stolen) == status("NV_ERR_INVALID_CHANNEL")
    close([mine, theirs], bell)


def shares(channels: list[Channel], seconds: float = 0.4) -> list[float]:
    """Of the GPU time in a while; each reading is of one moment."""

    def spent() -> list[int]:
        rows = {(row["client"], row["handle"]): int(row["gpu_time_us"]) for row in table("tsgs")}
        return [rows[f"0x{channel.rm.client:08x}", f"0x{channel.group:08x}"] for channel in channels]

    before = spent()
    time.sleep(seconds)
    parts = [now - was for now, was in zip(spent(), before, strict=True)]
    return [part / sum(parts) for part in parts]


def test_levels_count_unless_somebody_switched_them_off(rm: Rm, other: Rm) -> None:
    channels, bell = running(rm, rm, rm)
    for channel in channels:
        assert set_slice(channel, 2000) == 0
        channel.submit(bell, ENDLESS)
    assert level(channels[0], 2) == 0
    assert shares(channels)[0] > 0.45, "before every other's turn"
    policy = Block.of("NV2080_CTRL_FIFO_RUNLIST_SET_SCHED_POLICY_PARAMS", schedPolicy=0)
    command = "NV2080_CTRL_CMD_FIFO_RUNLIST_SET_SCHED_POLICY"
    assert other.control(other.subdevice, command, policy) == 0
    assert 0.25 < shares(channels)[0] < 0.42
    assert level(channels[0], 1) == status("NV_ERR_INVALID_STATE")
    assert rm.control(rm.subdevice, command, policy) == status("NV_ERR_INVALID_STATE"), "another holds it"
    other.close()
    assert shares(channels)[0] > 0.45, "and with that client it is gone"

    def as_nobody() -> int:
        os.setuid(65534)
        return int(rm.control(rm.subdevice, command, policy) == status("NV_ERR_INSUFFICIENT_PERMISSIONS"))

    assert in_child(as_nobody) == 1
    close(channels, bell)


def test_real_time_comes_first(rm: Rm, other: Rm) -> None:
    channels, bell = running(rm, rm, other)
    for channel in channels:
        assert set_slice(channel, 2000) == 0
        channel.submit(bell, ENDLESS)
    params = Block.of("NVA06C_CTRL_MAKE_REALTIME_PARAMS", bRealtime=1)
    assert rm.control(channels[1].group, "NVA06C_CTRL_CMD_MAKE_REALTIME", params) == 0
    assert channels[1].row()["level"] == "2"
    assert shares(channels)[1] > 0.45
    params.put("bRealtime", 0)
    assert rm.control(channels[1].group, "NVA06C_CTRL_CMD_MAKE_REALTIME", params) == 0
    assert 0.25 < shares(channels)[1] < 0.42
    close(channels, bell)


def test_a_restart_of_the_runlist_lets_the_first_in(rm: Rm, other: Rm) -> None:
    (low, high), bell = running(rm, other)
    assert level(high, 2) == 0
    assert set_slice(low, 10_000_000) == 0
    low.submit(bell, ENDLESS)
    until(low.moves)
    high.submit(bell, MS)
    assert not high.wait(0.2)
    params = Block.of("NVA06F_CTRL_RESTART_RUNLIST_PARAMS")
    command = number("NVA06F_CTRL_CMD_RESTART_RUNLIST")
    assert rm.control(low.handle, command, params) == 0
    assert not high.wait(0.1), "not forced, and this channel runs already"
    params.put("bForceRestart", 1)
    assert rm.control(low.handle, command, params) == 0
    assert high.wait()
    close([low, high], bell)


def test_pausing_one_of_a_shared_group_hangs_the_other(rm: Rm, other: Rm) -> None:
    """As an MPS server's clients: channels of several processes in one TSG."""
    first, bell = Channel(rm), Doorbell(rm)
    assert first.schedule() == 0
    assert rm.share(first.group, "RS_SHARE_TYPE_ALL") == 0
    group = other.handle()
    assert other.dup(rm.client, first.group, group) == 0
    second = Channel(other, group)
    for channel in (first, second):
        channel.submit(bell, ENDLESS, 60)
    assert until(lambda: first.moves() and second.moves()), "side by side"
    assert first.disable(True) == 0
    assert not first.moves()
    assert not second.moves()
    assert first.row()["hung"] == "1"
    assert first.disable(False) == 0
    until(first.moves)
    assert not second.moves(), "it does not come back"
    # who takes all of them off hurts nobody
    third, fourth = Channel(rm, first.group, space=first.space), Channel(rm, first.group, space=first.space)
    for channel in (third, fourth):
        channel.submit(bell, ENDLESS, 10)
    until(lambda: third.moves() and fourth.moves())
    assert third.disable(True) == 0
    until(fourth.moves, said=lambda: "channels of one client may be paused one by one")
    row = next(row for row in table("tsgs") if row["handle"] == f"0x{first.group:08x}")
    assert row["hung"] == "1"
    close([first, third, fourth], bell)
    second.close()
