# SPDX-License-Identifier: Apache-2.0
"""The `Driver` protocol over the model, with the switches that tests turn."""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from detshare.ctl.abi.versions import UnknownBranch, branches, for_version
from detshare.ctl.backends.model.gpu import GpuModel
from detshare.ctl.backends.model.objects import CONTROL_PATH, OpenFile
from detshare.ctl.backends.model.process import Machine, ModelProcess
from detshare.ctl.backends.model.rm import RmServer
from detshare.ctl.core.driver import Counts, DescriptorGone, Gpu, NotAllowed, Opener, ProcessGone, ProcessId, Usage
from detshare.ctl.core.gputime import Switch

H100 = Gpu("GPU-3b269624-5005-67c3-4026-6cc0bb057439", 0, "NVIDIA H100 80GB HBM3", "0000:06:00.0", 80 << 30)

MEASURED_SECONDS: Mapping[str, float] = {
    "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO": 4e-6,
    "NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE": 4e-6,
    "NVA06C_CTRL_CMD_GET_TIMESLICE": 4e-6,
    "NVA06C_CTRL_CMD_GET_INFO": 4e-6,
    "NV906F_CTRL_GET_CLASS_ENGINEID": 4e-6,
    "NV2080_CTRL_CMD_GPU_GET_GID_INFO": 4e-6,
    "NVA06C_CTRL_CMD_SET_TIMESLICE": 256e-6,
    "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL": 228e-6,
    "NVA06C_CTRL_CMD_PREEMPT": 475e-6,
    "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS": 580e-6,
}
"""what each control took on an H100, for `ModelDriver.latency`"""


@dataclass(frozen=True, slots=True)
class Call:
    """A control about to be made."""

    process: ProcessId
    client: int
    target: int
    command: int
    name: str
    params: bytes


class ModelDescriptor:
    """A borrowed descriptor; EBADF once its `with` block has ended."""

    def __init__(self, driver: ModelDriver, process: ProcessId, file: OpenFile) -> None:
        self._driver = driver
        self._process = process
        self._file = file
        self.closed = False

    def control(self, client: int, target: int, command: int, params: bytearray) -> int:
        if self.closed:
            raise OSError(errno.EBADF, "the borrowed descriptor was given back")
        return self._driver.issue(self._process, self._file, client, target, command, params)

    def owns(self, client: int) -> bool:
        if self.closed:
            raise OSError(errno.EBADF, "the borrowed descriptor was given back")
        self._driver.questions += 1
        return self._driver.rm.owns(self._file, client)


class ModelSwitchLog:
    """The log of one simulated GPU, from its opening on (protocol SwitchLog)."""

    def __init__(self, gpu: GpuModel) -> None:
        self._timeline = gpu.timeline
        self._taken = self._timeline.logged
        self.dropped = 0

    def read(self) -> list[Switch]:
        fresh = self._timeline.logged - self._taken
        self._taken = self._timeline.logged
        kept = min(fresh, len(self._timeline.log))
        self.dropped += fresh - kept
        return list(islice(reversed(self._timeline.log), kept))[::-1]

    def now_ns(self) -> int:
        return self._timeline.now

    def close(self) -> None:
        return None


class ModelDriver:
    """A strict driver in memory.

    Switches: `before_control` (called with a Call before each control: kill a process there), `inject` (command
    name -> RM status to answer without doing it), `deny` (no root), `latency` (command name -> seconds, spent
    in `sleep`; MEASURED_SECONDS has the measured ones). Counters: `calls` by command name, `borrows`.
    """

    def __init__(self, *, version: str = "580.159.04", gpus: Sequence[Gpu] = (H100,), switch_us: float = 250.0) -> None:
        self._version = version
        try:
            abi = for_version(version)
        except UnknownBranch:
            # such a driver still works for its programs; only our tables do not know it
            abi = for_version(max(branches(), key=int))
        self.abi = abi
        self.gpu_models = [GpuModel(gpu, switch_us=switch_us) for gpu in gpus]
        self.rm = RmServer(abi, self.gpu_models)
        self._lock = threading.RLock()
        """of all of the machine: those who act on several GPUs do so in a thread for each"""
        self.machine = Machine(self.rm)
        self.deny = False
        self.before_control: Callable[[Call], None] | None = None
        self.inject: dict[str, int] = {}
        self.latency: Mapping[str, float] = {}
        self.sleep: Callable[[float], None] = time.sleep
        self.calls: Counter[str] = Counter()
        self.questions = 0
        """how often a descriptor was asked whether it owns a client"""
        self.borrows = 0
        self.borrowed = 0
        """descriptors on loan now"""
        self._names = {control.number: name for name, control in abi.controls.items()}

    @property
    def proof(self) -> str:
        return "model"

    @property
    def version(self) -> str:
        return self._version

    def gpus(self) -> list[Gpu]:
        return [model.info for model in self.gpu_models]

    def openers(self) -> list[Opener]:
        return [process.opener() for _, process in sorted(self.machine.processes.items()) if process.fds]

    def alive(self, process: ProcessId) -> bool:
        return self._find(process) is not None

    def find(self, pid: int) -> ProcessId | None:
        found = self.machine.processes.get(pid)
        return found.id if found is not None else None

    @contextmanager
    def borrow(self, process: ProcessId, fd: int) -> Iterator[ModelDescriptor]:
        """As pidfd_open, a look at the start time, pidfd_getfd; in that order."""
        owner = self._find(process)
        asked = f"borrow descriptor {fd} of pid {process.pid}"
        if owner is None:
            raise ProcessGone(f"{asked}: the process has ended; look again")
        if self.deny:
            raise NotAllowed(f"{asked}: EPERM from pidfd_getfd; run as root")
        file = owner.fds.get(fd)
        if file is None or not file.is_control:
            raise DescriptorGone(f"{asked}: it is no {CONTROL_PATH} any more; look again")
        with self._lock:
            self.rm.share_file(file)
            self.borrows += 1
            self.borrowed += 1
        descriptor = ModelDescriptor(self, process, file)
        try:
            yield descriptor
        finally:
            descriptor.closed = True
            with self._lock:
                self.borrowed -= 1
                self.rm.close(file)

    def issue(
        self, process: ProcessId, file: OpenFile, client: int, target: int, command: int, params: bytearray
    ) -> int:
        """One control, through hook, counters, injection and latency."""
        name = self._names.get(command, f"{command:#x}")
        if self.before_control is not None:
            self.before_control(Call(process, client, target, command, name, bytes(params)))
        self.calls[name] += 1
        if name in self.latency:
            self.sleep(self.latency[name])
        if name in self.inject:
            return self.inject[name]
        with self._lock:
            return self.rm.control(file, client, target, command, params)

    def newest_client(self) -> int:
        with self._lock:
            file = self.rm.open(CONTROL_PATH)
            try:
                _, handle = self.rm.alloc(file, 0, 0, 0, self.abi.klass("NV01_ROOT_CLIENT"))
                return handle
            finally:
                self.rm.close(file)

    def counts(self) -> Counts:
        return Counts(len(self.rm.clients), self.rm.resources)

    def usage(self, shares: Collection[str] | None = None) -> Usage:
        memory: dict[tuple[int, str], int] = {}
        share: dict[tuple[int, str], float] = {}
        for pid, process in self.machine.processes.items():
            for uuid, size in process.memory.items():
                memory[pid, uuid] = size
                share[pid, uuid] = 0.0
            for gpu, workload in process.workloads:
                key = (pid, gpu.info.uuid)
                share[key] = share.get(key, 0.0) + gpu.timeline.share(workload)
        return Usage(memory, {key: busy for key, busy in share.items() if shares is None or key[1] in shares})

    def switch_log(self, gpu: Gpu) -> ModelSwitchLog:
        if self.deny:
            raise NotAllowed(f"reading every user's context switches on GPU {gpu.minor}: EPERM; run as root")
        return ModelSwitchLog(next(model for model in self.gpu_models if model.info.uuid == gpu.uuid))

    def _find(self, process: ProcessId) -> ModelProcess | None:
        found = self.machine.processes.get(process.pid)
        return found if found is not None and found.id == process else None
