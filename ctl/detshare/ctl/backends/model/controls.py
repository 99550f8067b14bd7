# SPDX-License-Identifier: Apache-2.0
"""The RM controls that the model answers; every other command is NOT_SUPPORTED, as for an unknown one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detshare.ctl.backends.model.gpu import Channel, GpuModel, ModelTsg
from detshare.ctl.backends.model.objects import Kind, Node, kinds_by_internal_class

if TYPE_CHECKING:
    from detshare.ctl.backends.model.rm import RmServer


@dataclass(frozen=True, slots=True)
class Entry:
    """One exported control: the kind of object it belongs to, its exact size, who may call it."""

    name: str
    kind: Kind
    size: int
    admin: bool
    run: Callable[[Node, bytearray], int]


Controls = dict[int, Entry]

_RIGHTS = 0xF
"""what an H200 says of a client's own objects; bit 0: may duplicate it"""


def make_controls(server: RmServer) -> Controls:
    """Command number -> entry, for one driver version."""
    handlers = _Handlers(server)
    table: tuple[tuple[str, Kind, bool, Callable[[Node, bytearray], int]], ...] = (
        ("NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO", Kind.CLIENT, False, handlers.handle_info),
        ("NV0000_CTRL_CMD_CLIENT_GET_ACCESS_RIGHTS", Kind.CLIENT, False, handlers.access_rights),
        ("NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE", Kind.CLIENT, False, handlers.child_handle),
        ("NV0000_CTRL_CMD_SYSTEM_GET_CLIENT_DATABASE_INFO", Kind.CLIENT, True, handlers.database),
        ("NV2080_CTRL_CMD_GPU_GET_GID_INFO", Kind.SUBDEVICE, False, handlers.gid),
        ("NV2080_CTRL_CMD_GPU_GET_PIDS", Kind.SUBDEVICE, False, handlers.pids),
        ("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS", Kind.SUBDEVICE, False, handlers.disable_channels),
        ("NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS", Kind.DEVICE, False, handlers.idle_channels),
        ("NV906F_CTRL_GET_CLASS_ENGINEID", Kind.CHANNEL, False, handlers.engine_of),
        ("NVA06C_CTRL_CMD_GET_INFO", Kind.TSG, False, handlers.tsg_info),
        ("NVA06C_CTRL_CMD_GET_TIMESLICE", Kind.TSG, False, handlers.get_slice),
        ("NVA06C_CTRL_CMD_SET_TIMESLICE", Kind.TSG, False, handlers.set_slice),
        ("NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", Kind.TSG, True, handlers.set_level),
        ("NVA06C_CTRL_CMD_PREEMPT", Kind.TSG, False, handlers.preempt),
        ("NV0041_CTRL_CMD_GET_SURFACE_PHYS_ATTR", Kind.MEMORY, True, handlers.place),
    )
    abi = server.abi
    return {
        abi.control(name).number: Entry(name, kind, abi.control(name).size, admin, run)
        for name, kind, admin, run in table
        if name in abi.controls
    }


def _tsg(node: Node) -> ModelTsg:
    assert node.tsg is not None
    return node.tsg


def _gpu(node: Node) -> GpuModel:
    assert node.gpu is not None
    return node.gpu


class _Handlers:
    def __init__(self, server: RmServer) -> None:
        self._server = server
        self._abi = server.abi
        self._ok = server.abi.status("NV_OK")
        self._internal = kinds_by_internal_class(server.abi)

    def handle_info(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS")
        found = node.client.objects.get(layout.get(params, "hObject"))
        if found is None:
            return self._abi.status("NV_ERR_OBJECT_NOT_FOUND")
        prefix = "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_"
        index = layout.get(params, "index")
        if index == self._abi.constant(prefix + "PARENT"):
            layout.put(params, "data.hResult", found.parent.handle if found.parent else 0)
        elif index == self._abi.constant(prefix + "CLASSID"):
            layout.put(params, "data.iResult", found.klass)
        else:
            return self._abi.status("NV_ERR_INVALID_ARGUMENT")
        return self._ok

    def access_rights(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV0000_CTRL_CLIENT_GET_ACCESS_RIGHTS_PARAMS")
        giver = self._server.clients.get(layout.get(params, "hClient"))
        if giver is None:
            return self._abi.status("NV_ERR_INVALID_CLIENT")
        found = giver.objects.get(layout.get(params, "hObject"))
        if found is None:
            return self._abi.status("NV_ERR_OBJECT_NOT_FOUND")
        mask = _RIGHTS if giver is node.client else int(found.shared or giver.pid == node.client.pid)
        layout.put(params, "maskResult.limbs", mask)
        return self._ok

    def child_handle(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE_PARAMS")
        parent = node.client.objects.get(layout.get(params, "hParent"))
        kind = self._internal.get(layout.get(params, "classId"))
        if parent is None or kind is None:
            return self._abi.status("NV_ERR_OBJECT_NOT_FOUND")
        handles = [handle for handle, child in parent.children.items() if child.kind is kind]
        if not handles:
            return self._abi.status("NV_ERR_OBJECT_NOT_FOUND")
        layout.put(params, "hObject", handles[0])
        return self._ok

    def place(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV0041_CTRL_GET_SURFACE_PHYS_ATTR_PARAMS")
        if node.address is None:
            return self._abi.status("NV_ERR_NOT_SUPPORTED")
        layout.put(params, "memOffset", node.address + layout.get(params, "memOffset"))
        return self._ok

    def database(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV0000_CTRL_SYSTEM_GET_CLIENT_DATABASE_INFO_PARAMS")
        layout.put(params, "clientCount", len(self._server.clients))
        layout.put(params, "resourceCount", self._server.resources)
        return self._ok

    def gid(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS")
        text = _gpu(node).info.uuid
        flags = layout.get(params, "flags")
        if layout.get(params, "index") != 0:
            return self._abi.status("NV_ERR_INVALID_ARGUMENT")
        # bit 1 selects the 16 raw bytes (what libcuda asks for), else the text with its closing zero
        data = uuid.UUID(text.removeprefix("GPU-")).bytes if flags & 2 else text.encode() + b"\0"
        layout.put(params, "length", len(data))
        start = layout.fields["data"].offset
        params[start : start + len(data)] = data
        return self._ok

    def pids(self, node: Node, params: bytearray) -> int:
        """Of class NV20_SUBDEVICE_0 and of engine objects; others have nobody."""
        layout = self._abi.layout("NV2080_CTRL_GPU_GET_PIDS_PARAMS")
        if layout.get(params, "idType"):  # 0: by class
            return self._abi.status("NV_ERR_INVALID_ARGUMENT")
        klass, kinds = layout.get(params, "id"), (Kind.SUBDEVICE, Kind.COMPUTE, Kind.COPY)
        found = {
            client.pid: None
            for client in self._server.clients.values()
            for each in client.objects.values()
            if each.gpu is node.gpu and each.klass == klass and each.kind in kinds
        }
        for index, pid in enumerate(found):
            layout.put(params, "pidTbl", pid, index)
        layout.put(params, "pidTblCount", len(found))
        return self._ok

    def engine_of(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS")
        handle = layout.get(params, "hObject")
        found = node.children.get(handle)
        if found is None or found.kind not in (Kind.COMPUTE, Kind.COPY):
            if handle:
                self._server.kernel_log.append(self._server.no_engine_object)
            return self._abi.status("NV_ERR_OBJECT_NOT_FOUND")
        layout.put(params, "classEngineID", found.klass)
        layout.put(params, "classID", found.klass)
        layout.put(params, "engineID", found.engine)
        return self._ok

    def tsg_info(self, node: Node, params: bytearray) -> int:
        self._abi.layout("NVA06C_CTRL_GET_INFO_PARAMS").put(params, "tsgID", _tsg(node).number)
        return self._ok

    def get_slice(self, node: Node, params: bytearray) -> int:
        self._abi.layout("NVA06C_CTRL_TIMESLICE_PARAMS").put(params, "timesliceUs", _tsg(node).slice_us)
        return self._ok

    def set_slice(self, node: Node, params: bytearray) -> int:
        tsg = _tsg(node)
        value = self._abi.layout("NVA06C_CTRL_TIMESLICE_PARAMS").get(params, "timesliceUs")
        tsg.gpu.set_slice(tsg, value)
        return self._ok

    def set_level(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS")
        level = layout.get(params, "tsgInterleaveLevel")
        if level > self._abi.constant("NVA06C_CTRL_INTERLEAVE_LEVEL_HIGH"):
            return self._abi.status("NV_ERR_NOT_SUPPORTED")
        _tsg(node).gpu.set_level(_tsg(node), level)
        return self._ok

    def preempt(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NVA06C_CTRL_PREEMPT_PARAMS")
        # the header's limit of a manual timeout is one second
        if layout.get(params, "bManualTimeout") and layout.get(params, "timeoutUs") > 1_000_000:
            return self._abi.status("NV_ERR_INVALID_ARGUMENT")
        _tsg(node).gpu.preempt(_tsg(node))
        return self._ok

    def disable_channels(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS")
        count = layout.get(params, "numChannels")
        if not 1 <= count <= self._abi.constant("NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES"):
            return self._abi.status("NV_ERR_INVALID_PARAM_STRUCT")
        if layout.get(params, "pRunlistPreemptEvent"):
            return self._abi.status("NV_ERR_INSUFFICIENT_PERMISSIONS")
        channels: list[Channel] = []
        for index in range(count):
            # the driver does not ask whose the listed channels are
            owner = self._server.clients.get(layout.get(params, "hClientList", index))
            found = owner.objects.get(layout.get(params, "hChannelList", index)) if owner else None
            if found is None or found.channel is None or found.gpu is not node.gpu:
                return self._abi.status("NV_ERR_INVALID_CHANNEL")
            channels.append(found.channel)
        enable = not layout.get(params, "bDisable")
        _gpu(node).switch_channels(channels, enable, bool(layout.get(params, "bOnlyDisableScheduling")))
        if not enable:
            self._note_hangs(channels)
        return self._ok

    def idle_channels(self, node: Node, params: bytearray) -> int:
        layout = self._abi.layout("NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS")
        count = layout.get(params, "numChannels")
        if not 1 <= count <= layout.fields["hChannels"].count:
            return self._abi.status("NV_ERR_INVALID_ARGUMENT")
        busy = False
        for index in range(count):
            found = node.client.objects.get(layout.get(params, "hChannels", index))
            if found is None or found.channel is None or found.tsg is None:
                return self._abi.status("NV_ERR_INVALID_CHANNEL")
            busy |= found.channel.enabled and not found.tsg.gpu.timeline.idle(found.tsg)
        return self._abi.status("NV_ERR_TIMEOUT") if busy else self._ok

    def _note_hangs(self, channels: list[Channel]) -> None:
        """Measured trap: disabling one MPS client's channels hangs the server's other clients."""
        for tsg in {id(channel.tsg): channel.tsg for channel in channels}.values():
            users = {
                client.handle
                for client in self._server.clients.values()
                for each in client.objects.values()
                if each.kind is Kind.TSG and each.tsg is tsg
            }
            if len(users) > 1 and not tsg.paused:
                tsg.hung = True
