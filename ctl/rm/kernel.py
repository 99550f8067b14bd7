# SPDX-License-Identifier: Apache-2.0
"""The real driver: descriptors of running programs duplicated with pidfd_getfd(2), RM controls by ioctl(2).

`pidfd_getfd` needs PTRACE_MODE_ATTACH_REALCREDS over the process, so in practice root; it is independent of pid and
mount namespaces. A client of RM may be used only through the very file it was made on (rmclientValidate, client.c),
which is why the tenant's own descriptor is needed and why no handle of another program can be hit by mistake.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from detshare.ctl.rm import procfs
from detshare.ctl.rm.abi import Abi, UnknownBranch, for_version
from detshare.ctl.rm.driver import (
    Descriptor,
    DescriptorGone,
    DriverAbsent,
    DriverError,
    Gpu,
    Holder,
    NotAllowed,
    ProcessGone,
    ProcessId,
    Usage,
)
from detshare.ctl.rm.nvml import Nvml
from detshare.ctl.rm.pidfd import getfd

_CONTROL_NODE = "/dev/nvidiactl"


def _escape(abi: Abi, name: str, size: int) -> int:
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
        self._layout = abi.layout("NVOS54_PARAMETERS")
        self._request = _escape(abi, "NV_ESC_RM_CONTROL", self._layout.size)
        self._block = self._layout.pack()
        self._put = self._layout.record("hClient", "hObject", "cmd", "params", "paramsSize").pack_into
        shared = abi.layout("NVOS57_PARAMETERS")
        self._share_request = _escape(abi, "NV_ESC_RM_SHARE", shared.size)
        self._share_block = shared.pack()
        record = shared.record("hClient", "status")
        self._put_share, self._get_share = record.pack_into, record.unpack_from
        self._mine = abi.status("NV_ERR_OBJECT_NOT_FOUND")
        self._not_mine = (abi.status("NV_ERR_INVALID_OBJECT_HANDLE"), abi.status("NV_ERR_INVALID_CLIENT"))
        self._status_name = abi.status_name

    def control(self, client: int, target: int, command: int, params: bytearray) -> int:
        """NV_ESC_RM_CONTROL. Returns the RM status; OSError where the ioctl fails."""
        block = self._block
        # The view pins the buffer's address for the length of the call.
        view = (ctypes.c_char * len(params)).from_buffer(params)
        self._put(block, 0, client, target, command, ctypes.addressof(view), len(params))
        fcntl.ioctl(self._fd, self._request, block, True)
        return self._layout.get(block, "status")

    def owns(self, client: int) -> bool:
        block = self._share_block
        self._put_share(block, 0, client, 0)
        fcntl.ioctl(self._fd, self._share_request, block, True)
        _, status = self._get_share(block)
        if status == self._mine:
            return True
        if status in self._not_mine:
            return False
        raise DriverError(f"asking whose client {client:#x} is: the driver answered {self._status_name(status)}")


class KernelDriver:
    """The driver loaded on this machine (protocol detshare.ctl.rm.driver.Driver)."""

    def __init__(self) -> None:
        version = procfs.driver_version()
        if version is None:
            raise DriverAbsent(
                "no NVIDIA driver is loaded here (/sys/module/nvidia is absent); load it, or try --backend model"
            )
        self.version = version
        self.proof = procfs.proof()
        try:
            self._abi: Abi | None = for_version(version)
        except UnknownBranch:
            self._abi = None
        self.nvml = Nvml()
        self._own: tuple[int, int, ControlFile] | None = None
        self._gpus: list[Gpu] | None = None

    def gpus(self) -> list[Gpu]:
        if self._gpus is None:
            total = self.nvml.memory_total()
            self._gpus = [
                Gpu(g.uuid, g.minor, g.name, g.pci, total.get(g.uuid, 0)) for g in procfs.gpus()
            ]
        return self._gpus

    def holders(self) -> list[Holder]:
        return list(procfs.holders())

    def usage(self) -> Usage:
        return self.nvml.usage()

    def alive(self, process: ProcessId) -> bool:
        return procfs.start_time(process.pid) == process.start

    def find(self, pid: int) -> ProcessId | None:
        start = procfs.start_time(pid)
        return None if start is None else ProcessId(pid, start)

    @contextmanager
    def borrow(self, process: ProcessId, fd: int) -> Iterator[Descriptor]:
        abi = self._abi_or_raise()
        pidfd = self._pidfd(process)
        try:
            copy = getfd(pidfd, fd)
        except OSError as error:
            self._refused(process, fd, error.errno or errno.EIO)
        finally:
            os.close(pidfd)
        try:
            rdev = os.fstat(copy).st_rdev
            if (os.major(rdev), os.minor(rdev)) != (procfs.NVIDIA_MAJOR, procfs.CONTROL_MINOR):
                raise DescriptorGone(f"descriptor {fd} of PID {process.pid} is no {_CONTROL_NODE} any more")
            yield ControlFile(copy, abi)
        finally:
            os.close(copy)

    @staticmethod
    def _pidfd(process: ProcessId) -> int:
        try:
            pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            raise ProcessGone(f"PID {process.pid} has ended") from None
        # The pidfd pins whoever has the number now; if that one began when ours did, it is ours.
        readable = select.poll()
        readable.register(pidfd, select.POLLIN)
        if procfs.start_time(process.pid) != process.start or readable.poll(0):
            os.close(pidfd)
            raise ProcessGone(f"PID {process.pid} has ended; its number may belong to another process now")
        return pidfd

    @staticmethod
    def _refused(process: ProcessId, fd: int, error: int) -> NoReturn:
        if error in (errno.EPERM, errno.EACCES):
            raise NotAllowed(
                f"duplicating descriptor {fd} of PID {process.pid} was refused ({os.strerror(error)}); "
                "run as root (CAP_SYS_PTRACE over the program)"
            )
        if error == errno.EBADF:
            raise DescriptorGone(f"descriptor {fd} of PID {process.pid} has been closed")
        if error == errno.ESRCH:
            raise ProcessGone(f"PID {process.pid} has ended")
        raise OSError(error, f"pidfd_getfd of PID {process.pid}: {os.strerror(error)}")

    def _abi_or_raise(self) -> Abi:
        return self._abi if self._abi is not None else for_version(self.version)

    def _make_client(self) -> tuple[int, int, ControlFile]:
        """(descriptor, client handle, file) of an RM client of our own; closing the descriptor frees it."""
        abi = self._abi_or_raise()
        try:
            fd = os.open(_CONTROL_NODE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise DriverAbsent(
                f"{_CONTROL_NODE} cannot be opened ({error.strerror}); is the driver loaded and the node made "
                "(nvidia-modprobe -c 0)?"
            ) from None
        layout = abi.layout("NVOS64_PARAMETERS")
        block = layout.pack(hClass=abi.klass("NV01_ROOT_CLIENT"))
        fcntl.ioctl(fd, _escape(abi, "NV_ESC_RM_ALLOC", layout.size), block, True)
        status = layout.get(block, "status")
        if status:
            os.close(fd)
            raise DriverAbsent(f"the driver gave us no RM client: {abi.status_name(status)}")
        return fd, layout.get(block, "hObjectNew"), ControlFile(fd, abi)

    def newest_client(self) -> int:
        fd, handle, _ = self._make_client()
        os.close(fd)
        return handle

    def resource_count(self) -> int:
        abi = self._abi_or_raise()
        if self._own is None:
            self._own = self._make_client()
        _, handle, file = self._own
        name = "NV0000_CTRL_CMD_SYSTEM_GET_CLIENT_DATABASE_INFO"
        layout = abi.params(name)
        params = layout.pack()
        status = file.control(handle, handle, abi.control(name).number, params)
        if status:
            raise NotAllowed(f"counting RM objects: {abi.status_name(status)}; run as root")
        return layout.get(params, "resourceCount")

    def close(self) -> None:
        """Give back our own RM client."""
        if self._own is not None:
            os.close(self._own[0])
            self._own = None
