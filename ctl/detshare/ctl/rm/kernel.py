# SPDX-License-Identifier: Apache-2.0
"""The real driver: descriptors of running programs duplicated with pidfd_getfd(2), RM controls by ioctl(2).

`pidfd_getfd` needs PTRACE_MODE_ATTACH_REALCREDS over the process, so in practice root; it is independent of pid and
mount namespaces. A client of RM may be used only through the very file it was made on (rmclientValidate, client.c),
which is why the tenant's own descriptor is needed and why no handle of another program can be hit by mistake.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NoReturn

from detshare.ctl.abi.versions import Abi, UnknownBranch, for_version
from detshare.ctl.core import procfs
from detshare.ctl.core.driver import (
    Counts,
    Descriptor,
    DescriptorGone,
    DriverAbsent,
    Gpu,
    NotAllowed,
    Opener,
    ProcessGone,
    ProcessId,
    SwitchLog,
    Usage,
)
from detshare.ctl.core.pidfd import getfd
from detshare.ctl.core.sweep import Sweep
from detshare.ctl.rm.fecs import FecsLog, OtherGpu
from detshare.ctl.rm.nvml import Nvml
from detshare.ctl.rm.session import CONTROL_NODE, ControlFile, Session


class KernelDriver:
    """The driver loaded on this machine (protocol detshare.ctl.core.driver.Driver)."""

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
        self._own: Session | None = None
        self._gpus: list[Gpu] | None = None
        self._sweep = Sweep()

    def gpus(self) -> list[Gpu]:
        if self._gpus is None:
            total = self.nvml.memory_total()
            mig = self.nvml.instances()
            self._gpus = [
                Gpu(g.uuid, g.minor, g.name, g.pci, total.get(g.uuid, 0), mig.get(g.uuid)) for g in procfs.gpus()
            ]
        return self._gpus

    def openers(self) -> list[Opener]:
        """Without those that have other GPUs only: in a container with a part of the machine's GPUs these are another
        daemon's."""
        mine = {gpu.minor for gpu in self.gpus()}
        found = []
        for each in self._sweep.openers(self.counts().clients if self._own is not None else None):
            theirs = {minor for _, minor in each.device_fds if minor < procfs.MODESET_MINOR}
            if not theirs or not mine or theirs & mine:
                found.append(each)
        return found

    def usage(self, shares: Collection[str] | None = None) -> Usage:
        if self._gpus is not None and any(gpu.mig is not None for gpu in self._gpus):
            mig = self.nvml.instances()
            self._gpus = [replace(gpu, mig=mig.get(gpu.uuid)) for gpu in self._gpus]
        return self.nvml.usage(shares)

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
                raise DescriptorGone(f"descriptor {fd} of PID {process.pid} is no {CONTROL_NODE} any more")
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

    def newest_client(self) -> int:
        session = Session(self._abi_or_raise())
        session.close()
        return session.client

    def counts(self) -> Counts:
        abi = self._abi_or_raise()
        if self._own is None:
            self._own = Session(abi)
        name = "NV0000_CTRL_CMD_SYSTEM_GET_CLIENT_DATABASE_INFO"
        layout = abi.params(name)
        answer = self._own.control("counting RM objects", self._own.client, name, layout.pack())
        return Counts(layout.get(answer, "clientCount"), layout.get(answer, "resourceCount"))

    def switch_log(self, gpu: Gpu) -> SwitchLog:
        """RM numbers devices as it attached them, mostly in the order of the bus (gpu_mgr.c):
        the UUID decides. Of a GPU that this process has not opened it refuses the device (device.c)."""
        bound = procfs.bound() or sorted(each.pci for each in self.gpus())
        guess = bound.index(gpu.pci) if gpu.pci in bound else 0
        refused: dict[int, NotAllowed] = {}
        for instance in sorted(range(max(len(bound), 1)), key=lambda each: each != guess):
            try:
                return FecsLog(self._abi_or_raise(), gpu.minor, gpu.uuid, instance)
            except NotAllowed as error:
                refused[instance] = error
        raise next((each for each in refused.values() if not isinstance(each, OtherGpu)), refused[guess])

    def close(self) -> None:
        """Give back our own RM client."""
        if self._own is not None:
            self._own.close()
            self._own = None
