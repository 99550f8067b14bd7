# SPDX-License-Identifier: Apache-2.0
"""Typed questions and controls on one RM client, over a descriptor that owns it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.driver import Descriptor

_INFO = "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO"
_CHILD = "NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE"
_DISABLE = "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"
_RIGHTS = "NV0000_CTRL_CMD_CLIENT_GET_ACCESS_RIGHTS"
_PIDS = "NV2080_CTRL_CMD_GPU_GET_PIDS"
_IDLE = "NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS"
_FORCE_BUSY_CHECK = 3 | 1 << 8 | 4 << 8
"""NVOS30_FLAGS (nvos.h): behaviour FORCE_BUSY_CHECK, of a list of channels, push buffers and the graphics engine"""
_IDLE_LIMIT_US = 400
PLACE = "NV0041_CTRL_CMD_GET_SURFACE_PHYS_ATTR"
"""memAperture: 0 is the GPU's own memory (ctrl0041.h)"""
_GID = "NV2080_CTRL_CMD_GPU_GET_GID_INFO"


class RmError(Exception):
    """RM answered with a status other than NV_OK."""

    def __init__(self, what: str, status: int, name: str) -> None:
        super().__init__(f"{what}: the driver answered {name} ({status:#x})")
        self.status = status
        self.name = name


class WrongClient(RmError):
    """The descriptor does not own this client: it ended, or the descriptor is another file by now."""


class NoObject(RmError):
    """The object does not exist (any more)."""


_CHANNEL = re.compile(r"\w+_CHANNEL_GPFIFO_[A-Z]")


def channel_classes(abi: Abi) -> frozenset[int]:
    """Class numbers of channels."""
    return frozenset(number for name, number in abi.classes.items() if _CHANNEL.fullmatch(name))


_FRESH_S = 50e-6
"""so long after it was asked whether the client exists it is taken to exist still"""


class RmClient:
    """An RM client reached through a descriptor that owns it.

    A control on a client that its program has just freed would be a line in the kernel log (see Descriptor), so each
    is preceded by the question that is none, unless that was asked a moment ago.

    Every method raises WrongClient or NoObject when what it names is gone and RmError for any other refusal.
    """

    def __init__(self, descriptor: Descriptor, abi: Abi, handle: int) -> None:
        self.handle = handle
        self._descriptor = descriptor
        self._abi = abi
        self._wrong_client = abi.status("NV_ERR_INVALID_CLIENT")
        self._sure_until = float("-inf")
        self._no_object = (abi.status("NV_ERR_OBJECT_NOT_FOUND"), abi.status("NV_ERR_INVALID_OBJECT_HANDLE"))

    def _make_sure(self, what: str) -> None:
        if time.monotonic() >= self._sure_until:
            if not self._descriptor.owns(self.handle):
                raise WrongClient(what, self._wrong_client, self._abi.status_name(self._wrong_client))
            self._sure_until = time.monotonic() + _FRESH_S

    def _control(self, what: str, target: int, name: str, params: bytearray) -> bytearray:
        self._make_sure(what)
        status = self._descriptor.control(self.handle, target, self._abi.control(name).number, params)
        if status:
            text = self._abi.status_name(status)
            if status == self._wrong_client:
                raise WrongClient(what, status, text)
            if status in self._no_object:
                raise NoObject(what, status, text)
            raise RmError(what, status, text)
        return params

    def _info(self, handle: int, index: str) -> int:
        layout = self._abi.params(_INFO)
        constant = self._abi.constant(f"{_INFO}_INDEX_{index}")
        params = layout.pack(hObject=handle, index=constant)
        self._control(f"asking about object {handle:#x}", self.handle, _INFO, params)
        return layout.get(params, "data.iResult" if index == "CLASSID" else "data.hResult")

    def klass(self, handle: int) -> int:
        """Class number of an object."""
        return self._info(handle, "CLASSID")

    def parent(self, handle: int) -> int:
        """Handle of an object's parent; 0 for the client itself."""
        return self._info(handle, "PARENT")

    def child(self, parent: int, internal_class: str) -> int | None:
        """The first child of `parent` of one of the driver's internal classes (Device, KernelChannelGroupApi, ...)."""
        layout = self._abi.params(_CHILD)
        params = layout.pack(hParent=parent, classId=self._abi.constant(f"__nvoc_class_id_{internal_class}"))
        try:
            self._control(f"asking for a child of {parent:#x}", self.handle, _CHILD, params)
        except NoObject:
            return None
        return layout.get(params, "hObject")

    def existing(self, handles: Iterable[int]) -> Iterator[tuple[int, int]]:
        """(handle, class) of those of `handles` that exist. One question each, without allocations between."""
        layout = self._abi.params(_INFO)
        number = self._abi.control(_INFO).number
        params = layout.pack()
        index = self._abi.constant(f"{_INFO}_INDEX_CLASSID")
        put = layout.record("hObject", "index").pack_into
        control, client, missing = self._descriptor.control, self.handle, self._no_object
        for handle in handles:
            self._make_sure("asking about objects")
            put(params, 0, handle, index)
            status = control(client, client, number, params)
            if not status:
                yield handle, layout.get(params, "data.iResult")
            elif status not in missing:
                name = self._abi.status_name(status)
                kind = WrongClient if status == self._wrong_client else RmError
                raise kind(f"asking about object {handle:#x}", status, name)

    def timeslice(self, tsg: int) -> int:
        """Time slice of a TSG in microseconds, as the driver last accepted it."""
        name = "NVA06C_CTRL_CMD_GET_TIMESLICE"
        layout = self._abi.params(name)
        return layout.get(self._control(f"reading the slice of TSG {tsg:#x}", tsg, name, layout.pack()), "timesliceUs")

    def set_timeslice(self, tsg: int, microseconds: int) -> None:
        name = "NVA06C_CTRL_CMD_SET_TIMESLICE"
        params = self._abi.params(name).pack(timesliceUs=microseconds)
        self._control(f"setting the slice of TSG {tsg:#x} to {microseconds} us", tsg, name, params)

    def set_level(self, tsg: int, level: int) -> None:
        """Runlist interleave level; needs root or CAP_SYS_NICE."""
        name = "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL"
        params = self._abi.params(name).pack(tsgInterleaveLevel=level)
        self._control(f"setting the level of TSG {tsg:#x} to {level}", tsg, name, params)

    def preempt(self, tsg: int) -> None:
        """Take the TSG off the GPU and wait until it is off; it stays runnable."""
        name = "NVA06C_CTRL_CMD_PREEMPT"
        self._control(f"preempting TSG {tsg:#x}", tsg, name, self._abi.params(name).pack(bWait=1))

    def tsg_id(self, tsg: int) -> int:
        """The hardware's number of a TSG; two handles with one number on one GPU are one TSG."""
        name = "NVA06C_CTRL_CMD_GET_INFO"
        layout = self._abi.params(name)
        return layout.get(self._control(f"asking for the number of TSG {tsg:#x}", tsg, name, layout.pack()), "tsgID")

    def engine(self, channel: int, engine_object: int) -> int:
        """NV2080_ENGINE_TYPE of an engine object (compute, copy, ...) on a channel."""
        # the driver asserts that there is one (kchannelCtrlCmdGetClassEngineid, kernel_channel.c), which is a line
        self.klass(engine_object)
        name = "NV906F_CTRL_GET_CLASS_ENGINEID"
        layout = self._abi.params(name)
        params = layout.pack(hObject=engine_object)
        answer = self._control(f"asking for the engine of {engine_object:#x}", channel, name, params)
        return layout.get(answer, "engineID")

    def idle(self, device: int, channels: Sequence[int]) -> bool | None:
        """Whether the driver says that channels below `device` have nothing left to run; None where it does not know.

        FORCE_BUSY_CHECK waits `_IDLE_LIMIT_US` at most; an answer takes 0.7 to 1.1 ms (docs/how/module-scheduling.md).
        """
        layout = self._abi.params(_IDLE)
        most = layout.fields["hChannels"].count
        for start in range(0, len(channels), most):
            batch = channels[start : start + most]
            params = layout.pack(numChannels=len(batch), flags=_FORCE_BUSY_CHECK, timeout=_IDLE_LIMIT_US)
            for index, channel in enumerate(batch):
                layout.put(params, "hChannels", channel, index)
            self._make_sure("asking whether channels rest")
            status = self._descriptor.control(self.handle, device, self._abi.control(_IDLE).number, params)
            if status in (self._abi.status("NV_ERR_TIMEOUT"), self._abi.status("NV_ERR_BUSY_RETRY")):
                return False
            if status:
                return None
        return True

    def address(self, memory: int) -> int | None:
        """Where a piece of memory begins on its GPU, in bytes; None: it lies elsewhere. abi.Missing before 580."""
        layout = self._abi.params(PLACE)
        answer = self._control(f"asking where memory {memory:#x} lies", memory, PLACE, layout.pack())
        return None if layout.get(answer, "memAperture") else layout.get(answer, "memOffset")

    def gpu_uuid(self, subdevice: int) -> str:
        """UUID of the GPU behind a subdevice, as NVML prints it."""
        layout = self._abi.params(_GID)
        params = layout.pack(flags=self._abi.constant("NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_ASCII"))
        self._control("asking for the GPU's UUID", subdevice, _GID, params)
        return layout.raw(params, "data").split(b"\0")[0].decode("ascii", "replace")

    def same_maker(self, other: int) -> bool:
        """Whether this client might duplicate an object of client `other`, which exists. By default the driver lets
        clients of one process do so, and no others (cliresShareCallback, RS_SHARE_TYPE_PID)."""
        layout = self._abi.params(_RIGHTS)
        params = layout.pack(hObject=other, hClient=other)
        self._control(f"asking for rights on client {other:#x}", self.handle, _RIGHTS, params)
        return bool(layout.get(params, "maskResult.limbs") & 1)

    def pids(self, subdevice: int, klass: int) -> frozenset[int]:
        """Processes that made objects of a class on the GPU behind a subdevice, in the numbers of our pid namespace;
        of NV20_SUBDEVICE_0: that have any client with this GPU."""
        layout = self._abi.params(_PIDS)
        params = layout.pack(id=klass)  # idType 0: by class
        self._control(f"asking who made objects of class {klass:#x}", subdevice, _PIDS, params)
        count = min(layout.get(params, "pidTblCount"), layout.fields["pidTbl"].count)
        return frozenset(layout.get(params, "pidTbl", index) for index in range(count))

    def switch_channels(self, subdevice: int, channels: Sequence[int], *, run: bool) -> None:
        """Stop channels (and take what runs on them off the GPU) or let them run again.

        In batches of the driver's limit; raises at the first that is refused, earlier ones stay switched.
        """
        layout = self._abi.params(_DISABLE)
        most = self._abi.constant("NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES")
        for start in range(0, len(channels), most):
            batch = channels[start : start + most]
            params = layout.pack(bDisable=0 if run else 1, numChannels=len(batch))
            for index, channel in enumerate(batch):
                layout.put(params, "hClientList", self.handle, index)
                layout.put(params, "hChannelList", channel, index)
            verb = "resuming" if run else "pausing"
            self._control(f"{verb} {len(batch)} channels", subdevice, _DISABLE, params)
