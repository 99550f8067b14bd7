# SPDX-License-Identifier: Apache-2.0
"""An RM client of our own with objects below it: device, subdevice, memory that the driver writes and we map."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from contextlib import suppress
from typing import Final

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.driver import DriverAbsent, DriverError, NotAllowed

CONTROL_NODE: Final = "/dev/nvidiactl"
_DEVICE: Final = 0xD0000001
_SUBDEVICE: Final = 0xD0000002


def escape(abi: Abi, name: str, size: int) -> int:
    """ioctl number of an RM escape: _IOWR('F', nr, size) (kernel-open/common/inc/nv-ioctl-numbers.h)."""
    return 3 << 30 | size << 16 | abi.constant("NV_IOCTL_MAGIC") << 8 | abi.constant(name)


class ControlFile:
    """An open descriptor of /dev/nvidiactl, ours or a duplicate.

    owns() asks NV_ESC_RM_SHARE to share object 0, which no client has: nothing is shared, and the three statuses say
    whose the client is (serverShareResourceAccess, rs_server.c; 535 to 595 are alike). NV_ESC_RM_CONTROL would log
    each handle that is no client's (RmDeprecatedGetControlHandler, rmapi_deprecated_control.c).
    """

    def __init__(self, fd: int, abi: Abi) -> None:
        self._fd = fd
        layout = abi.layout("NVOS54_PARAMETERS")
        self._request = escape(abi, "NV_ESC_RM_CONTROL", layout.size)
        self._pack = layout.record("hClient", "hObject", "cmd", "params", "paramsSize").pack
        self._unpack = layout.record("status").unpack
        self._pinned: tuple[bytearray | None, object, int] = (None, None, 0)
        """the parameters of the last control, a view that pins them, and their address: thousands of questions in a
        row have the same"""
        shared = abi.layout("NVOS57_PARAMETERS")
        self._share_request = escape(abi, "NV_ESC_RM_SHARE", shared.size)
        self._share = shared.record("hClient", "status")
        self._mine = abi.status("NV_ERR_OBJECT_NOT_FOUND")
        self._not_mine = (abi.status("NV_ERR_INVALID_OBJECT_HANDLE"), abi.status("NV_ERR_INVALID_CLIENT"))
        self._status_name = abi.status_name

    def control(self, client: int, target: int, command: int, params: bytearray) -> int:
        """NV_ESC_RM_CONTROL. Returns the RM status; OSError where the ioctl fails.

        A control without parameters takes no address either (_rmapiRmControl, control.c).
        """
        pinned = self._pinned
        if pinned[0] is not params:
            view = (ctypes.c_char * len(params)).from_buffer(params)
            pinned = self._pinned = params, view, ctypes.addressof(view) if params else 0
        block = bytearray(self._pack(client, target, command, pinned[2], len(params)))
        fcntl.ioctl(self._fd, self._request, block, True)
        status: int = self._unpack(block)[0]
        return status

    def owns(self, client: int) -> bool:
        block = bytearray(self._share.pack(client, 0))
        fcntl.ioctl(self._fd, self._share_request, block, True)
        _, status = self._share.unpack(block)
        if status == self._mine:
            return True
        if status in self._not_mine:
            return False
        raise DriverError(f"asking whose client {client:#x} is: the driver answered {self._status_name(status)}")


class Session:
    """One RM client. Closing it frees all that was made below it. NotAllowed where the driver refuses a part."""

    def __init__(self, abi: Abi) -> None:
        self.abi = abi
        self._files: list[int] = []
        self._maps: list[mmap.mmap] = []
        try:
            self.fd = self._open(CONTROL_NODE)
        except OSError as error:
            raise DriverAbsent(
                f"{CONTROL_NODE} cannot be opened ({error.strerror}); is the driver loaded and the node made "
                "(nvidia-modprobe -c 0)?"
            ) from None
        self.file = ControlFile(self.fd, abi)
        try:
            self.client = self.alloc("an RM client", 0, 0, "NV01_ROOT_CLIENT")
        except BaseException:
            self.close()
            raise

    def _open(self, path: str) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._files.append(fd)
        return fd

    def alloc(self, what: str, parent: int, new: int, klass: str, params: bytearray | None = None) -> int:
        """Make an object; returns its handle. `parent` 0: the client itself is made."""
        layout = self.abi.layout("NVOS64_PARAMETERS")
        given = params if params is not None else bytearray()
        view = (ctypes.c_char * len(given)).from_buffer(given)
        root = self.client if parent else 0
        block = layout.pack(
            hRoot=root, hObjectParent=parent, hObjectNew=new, hClass=self.abi.klass(klass),
            pAllocParms=ctypes.addressof(view) if given else 0, paramsSize=len(given),
        )  # fmt: skip
        fcntl.ioctl(self.fd, escape(self.abi, "NV_ESC_RM_ALLOC", layout.size), block, True)
        self._ok(f"making {what}", layout.get(block, "status"))
        return layout.get(block, "hObjectNew")

    def control(self, what: str, target: int, name: str, params: bytearray) -> bytearray:
        """A control on an object of ours; returns the answer."""
        self._ok(what, self.file.control(self.client, target, self.abi.control(name).number, params))
        return params

    def _ok(self, what: str, status: int) -> None:
        if status:
            raise NotAllowed(f"{what}: the driver answered {self.abi.status_name(status)} ({status:#x})")

    def subdevice(self, minor: int, instance: int) -> int:
        """The subdevice of a GPU: `minor` of its node, `instance` as RM counts devices."""
        node = self._open(f"/dev/nvidia{minor}")
        fcntl.ioctl(node, escape(self.abi, "NV_ESC_REGISTER_FD", 4), bytearray(self.fd.to_bytes(4, "little")), True)
        params = self.abi.layout("NV0080_ALLOC_PARAMETERS").pack(deviceId=instance)
        self.alloc(f"a device of GPU {minor}", self.client, _DEVICE, "NV01_DEVICE_0", params)
        below = self.abi.layout("NV2080_ALLOC_PARAMETERS").pack()
        return self.alloc(f"a subdevice of GPU {minor}", _DEVICE, _SUBDEVICE, "NV20_SUBDEVICE_0", below)

    def uuid(self, subdevice: int) -> str:
        """UUID of the GPU behind a subdevice of ours, as NVML prints it."""
        name = "NV2080_CTRL_CMD_GPU_GET_GID_INFO"
        layout = self.abi.params(name)
        params = layout.pack(flags=self.abi.constant("NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_ASCII"))
        answer = self.control("asking for the GPU's UUID", subdevice, name, params)
        return layout.raw(answer, "data").split(b"\0")[0].decode("ascii", "replace")

    def os_event(self) -> int:
        """A descriptor that the driver may wake; its number is the event's handle."""
        fd = self._open(CONTROL_NODE)
        layout = self.abi.layout("nv_ioctl_alloc_os_event_t")
        block = layout.pack(hClient=self.client, fd=fd)
        fcntl.ioctl(fd, escape(self.abi, "NV_ESC_ALLOC_OS_EVENT", layout.size), block, True)
        self._ok("making an event", layout.get(block, "Status"))
        return fd

    def memory(self, handle: int, size: int) -> mmap.mmap:
        """System memory that the driver writes and this process reads."""
        constant = self.abi.constant
        attr = 0
        for name, value in (("LOCATION", "PCI"), ("PHYSICALITY", "CONTIGUOUS"), ("COHERENCY", "CACHED")):
            attr |= constant(f"NVOS32_ATTR_{name}_{value}") << constant(f"NVOS32_ATTR_{name}_LO")
        attr2 = constant("NVOS32_ATTR2_PROTECTION_USER_READ_ONLY") << constant("NVOS32_ATTR2_PROTECTION_USER_LO")
        params = self.abi.layout("NV_MEMORY_ALLOCATION_PARAMS").pack(attr=attr, attr2=attr2, size=size)
        self.alloc("memory that the driver writes", self.client, handle, "NV01_MEMORY_DEVICELESS", params)
        fd = self._open(CONTROL_NODE)
        layout = self.abi.layout("nv_ioctl_nvos33_parameters_with_fd")
        flags = constant("NVOS33_FLAGS_ACCESS_READ_ONLY") << constant("NVOS33_FLAGS_ACCESS_LO")
        block = layout.pack(**{
            "params.hClient": self.client, "params.hDevice": self.client, "params.hMemory": handle,
            "params.length": size, "params.flags": flags, "fd": fd,
        })  # fmt: skip
        fcntl.ioctl(self.fd, escape(self.abi, "NV_ESC_RM_MAP_MEMORY", layout.size), block, True)
        self._ok("mapping memory that the driver writes", layout.get(block, "params.status"))
        mapped = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        self._maps.append(mapped)
        return mapped

    def close(self) -> None:
        """Free everything. Idempotent."""
        for mapped in self._maps:
            with suppress(BufferError):
                mapped.close()
        # the client's own descriptor last: the driver frees what hangs on the others with it
        for fd in reversed(self._files):
            with suppress(OSError):
                os.close(fd)
        self._maps, self._files = [], []
