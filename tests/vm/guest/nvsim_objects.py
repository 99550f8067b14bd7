# SPDX-License-Identifier: Apache-2.0
"""Objects of the simulated driver: handles, trees, the files that own them, duplicates and shares."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from tests.vm.guest.nvsim_rm import Block, Rm, escape, number, status, truth
from tests.vm.guest.nvsim_tools import MIB, channel, in_child, klass_of, other, rm, tsg, vas

__all__ = ["other", "rm"]  # fixtures


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


def test_a_device_has_one_subdevice(rm: Rm) -> None:
    size = Block.of("NV2080_ALLOC_PARAMETERS")
    assert rm.alloc("NV20_SUBDEVICE_0", rm.device, 0x10, size)[0] == status("NV_ERR_INSUFFICIENT_RESOURCES")
    assert rm.alloc("NV01_DEVICE_0", rm.client, 0x20, Block.of("NV0080_ALLOC_PARAMETERS"))[0] == 0
    assert rm.alloc("NV20_SUBDEVICE_0", 0x20, 0x10, size)[0] == 0
    assert rm.free(rm.subdevice) == 0
    code, chosen = rm.alloc("NV20_SUBDEVICE_0", rm.device, 0, size)
    assert (code, chosen >> 20) == (0, 0xCAF)


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
    assert rm.export(0x40, carrier) == 0
    assert rm.free(0x40) == 0
    assert truth("used") == 4 * MIB
    assert other.take(carrier, 0x60) == 0
    os.close(carrier)
    assert truth("used") == 4 * MIB
    assert other.free(0x60) == 0
    assert truth("used") == 0


def test_channel_groups_and_doorbells_leave_by_one_too(rm: Rm, other: Rm) -> None:
    """Whatever can be duplicated does."""
    params = Block.of("NV_HOPPER_USERMODE_A_PARAMS")
    code, bell = rm.alloc("HOPPER_USERMODE_A", rm.subdevice, rm.handle(), params)
    assert code == 0
    for handle, parent, klass in (
        (tsg(rm), other.device, "KEPLER_CHANNEL_GROUP_A"),
        (bell, other.subdevice, "HOPPER_USERMODE_A"),
    ):
        carrier = os.open("/dev/nvidiactl", os.O_RDWR)
        assert rm.export(handle, carrier) == 0
        assert rm.free(handle) == 0
        copy = other.handle()
        assert other.take(carrier, copy, parent=parent) == 0
        os.close(carrier)
        assert klass_of(other, copy) == number(klass)
