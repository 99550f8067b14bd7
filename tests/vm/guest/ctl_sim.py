# SPDX-License-Identifier: Apache-2.0
"""The simulated driver in the guest behind the surface that the root backend's tests know from the in-process model.

`SimDriver` is the real KernelDriver with the model's switches (before_control, inject, deny, counters). Its machine
starts real processes (ctl_puppet), which make the recorded objects by real ioctls; what the driver did is read from
nvsim's debugfs. A test that replaces `driver.rm.control` stands between the backend and the ioctl.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detshare.ctl.abi.layout import Layout
from detshare.ctl.backends.model.driver import Call
from detshare.ctl.backends.model.objects import CONTROL_PATH, Kind, kinds_by_class
from detshare.ctl.core.driver import Descriptor, Gpu, NotAllowed, Opener, ProcessId
from detshare.ctl.rm.kernel import KernelDriver
from tests.kernel_log import KernelLog
from tests.vm.guest.ctl_params import Params, outer
from tests.vm.guest.ctl_puppet import Puppet

DEBUGFS = Path("/sys/kernel/debug/nvsim")
_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36
_NV_ESC_RM_DUP_OBJECT, _NV_ESC_RM_SHARE = 0x34, 0x35  # kernel-open nv_escape.h
_OS_DESCRIPTOR, _SYSTEM_MEMORY = 0x71, 0x3E  # NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, NV01_MEMORY_SYSTEM
_RS_SHARE_TYPE_ALL, _RS_ACCESS_DUP_OBJECT = 1, 1  # rs_access.h


@dataclass
class SimFile:
    """An open file of some process; forked children have it under the same number."""

    path: str
    fd: int
    owners: list[SimProcess] = field(default_factory=list)
    clients: list[SimClient] = field(default_factory=list)

    @property
    def is_control(self) -> bool:
        return self.path == CONTROL_PATH

    @property
    def puppet(self) -> Puppet:
        return next(owner.puppet for owner in self.owners if owner.alive)


@dataclass
class SimClient:
    """What we made on a file, by our own book: who asks the driver must not look into the book."""

    handle: int
    objects: dict[int, SimNode] = field(default_factory=dict)


@dataclass
class SimNode:
    """An object in our book."""

    handle: int
    klass: int
    kind: Kind
    parent: int
    gpu: SimGpu | None = None
    tsg: SimTsg | None = None


@dataclass
class SimTsg:
    """A TSG; what it is like now is read from debugfs at each question."""

    gpu: SimGpu
    client: int
    handle: int
    file: SimFile

    def _row(self) -> dict[str, str]:
        lines = (DEBUGFS / f"gpu{self.gpu.info.minor}" / "tsgs").read_text().splitlines()
        names = lines[0].split()
        for line in lines[1:]:
            row = dict(zip(names, line.split(), strict=True))
            if (int(row["client"], 16), int(row["handle"], 16)) == (self.client, self.handle):
                return row
        raise LookupError(f"nvsim has no TSG {self.handle:#x} of client {self.client:#x}")

    @property
    def slice_us(self) -> int:
        return int(self._row()["slice_us"])

    @property
    def level(self) -> int:
        return int(self._row()["level"])

    @property
    def paused(self) -> bool:
        row = self._row()
        return row["off"] == row["channels"] != "0"

    @property
    def preempts(self) -> int:
        return int(self._row()["preempts"])

    @property
    def hung(self) -> bool:
        return int(self._row()["faulted"]) > 0


class SimGpu:
    """A GPU of the guest."""

    def __init__(self, driver: SimDriver, info: Gpu) -> None:
        self._driver = driver
        self.info = info
        self.tsgs: list[SimTsg] = []

    def set_slice(self, tsg: SimTsg, slice_us: int) -> None:
        """As the tenant itself does it."""
        abi = self._driver.abi
        name = "NVA06C_CTRL_CMD_SET_TIMESLICE"
        params = abi.params(name).pack(timesliceUs=slice_us)
        status = self._driver.rm.ask(tsg.file, tsg.client, tsg.handle, name, params)
        assert status == 0, f"the tenant's own SET_TIMESLICE: {abi.status_name(status)}"


class SimRm:
    """RM as processes reach it: every call is an ioctl of the process that owns the file."""

    def __init__(self, driver: SimDriver) -> None:
        self._driver = driver
        self.abi = driver.abi
        self._kinds = kinds_by_class(self.abi)
        self._params = Params(self.abi)
        self.clients: dict[int, SimClient] = {}
        self._log = KernelLog()

    @property
    def kernel_log(self) -> list[str]:
        """What nvsim wrote into the kernel log since."""
        return self._log.lines()

    def _escape(
        self, file: SimFile, number: int, layout: Layout, block: bytearray, params: bytes = b"", pointer: str = ""
    ) -> int:
        """An ioctl in the owner; the answer goes back into `block`. Returns the RM status."""
        request = 3 << 30 | len(block) << 16 | self.abi.constant("NV_IOCTL_MAGIC") << 8 | number
        at = layout.fields[pointer].offset if params else None
        block[:], _ = file.puppet.ioctl(file.fd, request, bytes(block), bytes(params), at)
        return layout.get(block, "status")

    def ask(self, file: SimFile, client: int, target: int, name: str, params: bytearray) -> int:
        """A control by the tenant itself."""
        layout = self.abi.layout("NVOS54_PARAMETERS")
        number = self.abi.control(name).number
        block = layout.pack(hClient=client, hObject=target, cmd=number, paramsSize=len(params))
        return self._escape(file, self.abi.constant("NV_ESC_RM_CONTROL"), layout, block, params, "params")

    def alloc(
        self, file: SimFile, root: int, parent: int, handle: int, klass: int,
        *, engine: int = 0, gpu: int = 0, pid: int = 0, size: int = 0,
    ) -> tuple[int, int]:  # fmt: skip
        """NV_ESC_RM_ALLOC with parameters as a CUDA program gives them. (status, handle). `size`: of memory."""
        if klass == _OS_DESCRIPTOR:  # of pages of the program's own, of which a puppet has none
            klass = _SYSTEM_MEMORY
        kind = self._kinds.get(klass, Kind.OTHER)
        if kind is Kind.DEVICE:  # RM makes a device only for who has opened the GPU
            owner = next(owner for owner in file.owners if owner.alive)
            owner.hold(f"/dev/nvidia{self._driver.gpu_models[gpu].info.minor}")
        params = self._params.of(klass, root, handle, engine=engine, gpu=gpu, size=size)
        layout = self.abi.layout("NVOS64_PARAMETERS")
        block = layout.pack(hRoot=root, hObjectParent=parent, hObjectNew=handle, hClass=klass, paramsSize=len(params))
        status = self._escape(file, self.abi.constant("NV_ESC_RM_ALLOC"), layout, block, params, "pAllocParms")
        made = layout.get(block, "hObjectNew")
        if status == 0:
            self._book(file, root or made, parent, made, klass, kind, gpu)
        return status, made

    def _book(self, file: SimFile, root: int, parent: int, handle: int, klass: int, kind: Kind, gpu: int) -> None:
        if kind is Kind.CLIENT or klass in (0, 1, 0x41):
            client = SimClient(handle)
            file.clients.append(client)
            self.clients[handle] = client
            return
        client = self.clients[root]
        node = SimNode(handle, klass, kind, parent)
        client.objects[handle] = node
        if kind is Kind.DEVICE:
            node.gpu = self._driver.gpu_models[gpu]
        if kind is Kind.TSG:
            node.tsg = SimTsg(self._gpu_of(client, parent), root, handle, file)
            node.tsg.gpu.tsgs.append(node.tsg)

    def _gpu_of(self, client: SimClient, handle: int) -> SimGpu:
        while handle in client.objects:
            node = client.objects[handle]
            if node.gpu is not None:
                return node.gpu
            handle = node.parent
        raise LookupError(f"object {handle:#x} is below no device")

    def dup(
        self, file: SimFile, root: int, parent: int, handle: int, source_client: int, source: int
    ) -> tuple[int, int]:
        """NV_ESC_RM_DUP_OBJECT. (status, handle)."""
        layout = outer(self.abi, "NVOS55_PARAMETERS")
        block = layout.pack(hClient=root, hParent=parent, hObject=handle, hClientSrc=source_client, hObjectSrc=source)
        status = self._escape(file, _NV_ESC_RM_DUP_OBJECT, layout, block)
        if status == 0:
            origin = self.clients[source_client].objects[source]
            self.clients[root].objects[handle] = SimNode(handle, origin.klass, origin.kind, parent, None, origin.tsg)
        return status, handle

    def share(self, file: SimFile, client: int, handle: int) -> None:
        """NV_ESC_RM_SHARE: everybody may duplicate the object."""
        layout = outer(self.abi, "NVOS57_PARAMETERS")
        block = layout.pack(hClient=client, hObject=handle)
        layout.put(block, "sharePolicy.accessMask", _RS_ACCESS_DUP_OBJECT)
        layout.put(block, "sharePolicy.type", _RS_SHARE_TYPE_ALL)
        status = self._escape(file, _NV_ESC_RM_SHARE, layout, block)
        assert status == 0, f"share {handle:#x}: {self.abi.status_name(status)}"

    def free(self, file: SimFile, root: int, handle: int) -> int:
        """NV_ESC_RM_FREE; the book loses what hangs below too."""
        layout = self.abi.layout("NVOS00_PARAMETERS")
        block = layout.pack(hRoot=root, hObjectOld=handle)
        status = self._escape(file, self.abi.constant("NV_ESC_RM_FREE"), layout, block)
        if status == 0 and handle == root:
            file.clients = [client for client in file.clients if client.handle != root]
            self.clients.pop(root, None)
        elif status == 0:
            self._strike(self.clients[root], handle)
        return status

    def _strike(self, client: SimClient, handle: int) -> None:
        client.objects.pop(handle, None)
        for below in [node.handle for node in client.objects.values() if node.parent == handle]:
            self._strike(client, below)

    def clients_of(self, file: SimFile) -> list[SimClient]:
        return list(file.clients)

    def control(self, file: SimFile, client: int, target: int, command: int, params: bytearray) -> int:
        """The ioctl on the descriptor that the backend borrowed; tests put their own in this place."""
        descriptor = self._driver.on_loan
        assert descriptor is not None
        return descriptor.control(client, target, command, params)


class SimProcess:
    """A process of the guest."""

    def __init__(self, machine: SimMachine, puppet: Puppet, parent: int) -> None:
        self.machine = machine
        self.puppet = puppet
        self.parent = parent
        self.fds: dict[int, SimFile] = {}
        self.memory: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self.alive = True
        process = machine.driver.find(puppet.pid)
        assert process is not None
        self.id = process
        self._container = ""

    def open(self, path: str) -> int:
        fd = self.puppet.open(path)
        self.fds[fd] = SimFile(path, fd, [self])
        return fd

    def take(self, giver: SimProcess, fd: int) -> int:
        number = self.puppet.take(giver.id.pid, fd)
        self.fds[number] = giver.fds[fd]
        self.fds[number].owners.append(self)
        return number

    def hold(self, path: str) -> None:
        """Open a GPU once, behind the test's back: the driver asks for it where the model does not."""
        if path not in self._held:
            self._held[path] = self.puppet.open(path)

    def close(self, fd: int) -> None:
        file = self.fds.pop(fd)
        self.puppet.close(fd)
        file.owners.remove(self)
        if not file.owners:
            for client in file.clients:
                self.machine.driver.rm.clients.pop(client.handle, None)

    @property
    def comm(self) -> str:
        return Path(f"/proc/{self.id.pid}/comm").read_text().rstrip("\n")

    @comm.setter
    def comm(self, name: str) -> None:
        self.puppet.name(name)

    @property
    def container(self) -> str:
        return self._container

    @container.setter
    def container(self, name: str) -> None:
        """Put the process into a cgroup that bears a container's id."""
        folder = Path("/sys/fs/cgroup") / name
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text(str(self.id.pid))
        self._container = name


class SimMachine:
    """Starts, forks and kills processes."""

    def __init__(self, driver: SimDriver) -> None:
        self.driver = driver
        self.processes: dict[int, SimProcess] = {}
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # a killed parent's forks are ours to reap

    def spawn(self, command: str, *, pid: int | None = None, parent: int = 1) -> SimProcess:
        process = SimProcess(self, Puppet.start(command, pid), parent)
        self.processes[process.id.pid] = process
        process.comm = command.split()[0].rsplit("/", 1)[-1][:15]
        return process

    def fork(self, parent: SimProcess) -> SimProcess:
        child = SimProcess(self, parent.puppet.fork(), parent.id.pid)
        self.processes[child.id.pid] = child
        child.fds = dict(parent.fds)
        for file in child.fds.values():
            file.owners.append(child)
        return child

    def exec(self, process: SimProcess, command: str, *, keep: Sequence[int] = ()) -> None:
        """What another program in its place does to the driver's files; the command line stays as it was."""
        for fd in [fd for fd in process.fds if fd not in keep]:
            process.close(fd)

    def kill(self, process: SimProcess) -> None:
        if not process.alive:
            return
        process.alive = False
        process.puppet.kill()
        self.processes.pop(process.id.pid, None)
        for file in process.fds.values():
            file.owners.remove(process)

    def end(self) -> None:
        for process in list(self.processes.values()):
            self.kill(process)


class SimDriver(KernelDriver):
    """KernelDriver on nvsim, with the switches and counters of the model."""

    def __init__(self) -> None:
        super().__init__()
        assert self.proof == "model", "these tests are for the simulated driver only"
        self.abi = self._abi_or_raise()
        self.gpu_models = [SimGpu(self, gpu) for gpu in self.gpus()]
        self.rm = SimRm(self)
        self.machine = SimMachine(self)
        self.deny = False
        self.before_control: Callable[[Call], None] | None = None
        self.inject: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.borrows = self.borrowed = self.questions = 0
        self.on_loan: Descriptor | None = None
        self._names = {control.number: name for name, control in self.abi.controls.items()}

    def openers(self) -> list[Opener]:
        """Only the test's own: another test's process may still be ending."""
        return [opener for opener in super().openers() if opener.id.pid in self.machine.processes]

    @contextmanager
    def borrow(self, process: ProcessId, fd: int) -> Iterator[Descriptor]:
        if self.deny:
            raise NotAllowed(f"borrow descriptor {fd} of pid {process.pid}: EPERM from pidfd_getfd; run as root")
        with super().borrow(process, fd) as descriptor:
            self.borrows += 1
            self.borrowed += 1
            try:
                yield _Watched(self, process, fd, descriptor)
            finally:
                self.borrowed -= 1

    def file_of(self, process: ProcessId, fd: int) -> Any:
        owner = self.machine.processes.get(process.pid)
        return owner.fds.get(fd) if owner is not None else None

    def name_of(self, command: int) -> str:
        return self._names.get(command, f"{command:#x}")


class _Watched:
    """A borrowed descriptor with the model's hook, injection and counters in front of the ioctl."""

    def __init__(self, driver: SimDriver, process: ProcessId, fd: int, descriptor: Descriptor) -> None:
        self._driver = driver
        self._process = process
        self._fd = fd
        self._descriptor = descriptor

    def owns(self, client: int) -> bool:
        self._driver.questions += 1
        return self._descriptor.owns(client)

    def control(self, client: int, target: int, command: int, params: bytearray) -> int:
        driver = self._driver
        name = driver.name_of(command)
        file = driver.file_of(self._process, self._fd)
        if driver.before_control is not None:
            driver.before_control(Call(self._process, client, target, command, name, bytes(params)))
        driver.calls[name] += 1
        if name in driver.inject:
            return driver.inject[name]
        before, driver.on_loan = driver.on_loan, self._descriptor
        try:
            return driver.rm.control(file, client, target, command, params)
        finally:
            driver.on_loan = before
