# SPDX-License-Identifier: Apache-2.0
"""Processes of the modelled machine: births, descriptors, fork, exec, death, and reuse of process numbers."""

from __future__ import annotations

from collections.abc import Sequence

from detshare.ctl.backends.model.gpu import GpuModel
from detshare.ctl.backends.model.objects import OpenFile
from detshare.ctl.backends.model.rm import RmServer
from detshare.ctl.backends.model.workload import Workload
from detshare.ctl.core.driver import Opener, ProcessId

INIT_NAMESPACE = 4026531836


class ModelProcess:
    """A process. `fds` maps descriptor numbers to open files; all are close-on-exec, as libcuda's are."""

    def __init__(self, machine: Machine, id: ProcessId, parent: int, command: str) -> None:
        self.machine = machine
        self.id = id
        self.parent = parent
        self.command = command
        self.comm = command.split()[0].rsplit("/", 1)[-1][:15]
        self.user = "root"
        self.cgroup = "/user.slice"
        self.container = ""
        self.pid_namespace = INIT_NAMESPACE
        self.fds: dict[int, OpenFile] = {}
        self.memory: dict[str, int] = {}
        """GPU UUID -> bytes, as NVML reports for a process with a context"""
        self.workloads: list[tuple[GpuModel, Workload]] = []
        self.alive = True

    def open(self, path: str) -> int:
        """Open a /dev/nvidia* node; the lowest free descriptor number from 3 up."""
        fd = next(n for n in range(3, 1 << 20) if n not in self.fds)
        self.fds[fd] = self.machine.rm.open(path)
        return fd

    def take(self, giver: ModelProcess, fd: int) -> int:
        """As pidfd_getfd(2): a duplicate of another process's descriptor, under the lowest free number."""
        number = next(n for n in range(3, 1 << 20) if n not in self.fds)
        self.fds[number] = self.machine.rm.share_file(giver.fds[fd])
        return number

    def close(self, fd: int) -> None:
        self.machine.rm.close(self.fds.pop(fd))

    def opener(self) -> Opener:
        return Opener(
            id=self.id,
            parent=self.parent,
            command=self.command,
            comm=self.comm,
            user=self.user,
            cgroup=self.cgroup,
            container=self.container,
            control_fds=tuple(fd for fd, file in sorted(self.fds.items()) if file.is_control),
            device_fds=tuple((fd, file.minor) for fd, file in sorted(self.fds.items()) if file.minor is not None),
            pid_namespace=self.pid_namespace,
        )


class Machine:
    """All processes, the RM server they talk to, and its GPUs. `now` is seconds since boot."""

    TICKS_PER_SECOND = 100

    def __init__(self, rm: RmServer, first_pid: int = 1000) -> None:
        self.rm = rm
        self.now = 1000.0
        self.processes: dict[int, ModelProcess] = {}
        self._next_pid = first_pid
        self._last_start = 0

    def _start_time(self) -> int:
        """Ticks since boot; later births never share an earlier one's value, so that reuse is visible."""
        self._last_start = max(self._last_start + 1, int(self.now * self.TICKS_PER_SECOND))
        return self._last_start

    def spawn(self, command: str, *, pid: int | None = None, parent: int = 1) -> ModelProcess:
        """Start a process; `pid` may be one that a dead process had. ValueError if it is in use."""
        if pid is None:
            pid = next(n for n in range(self._next_pid, 1 << 22) if n not in self.processes)
            self._next_pid = pid + 1
        elif pid in self.processes:
            raise ValueError(f"spawn as pid {pid}: that process is alive; kill it first")
        process = ModelProcess(self, ProcessId(pid, self._start_time()), parent, command)
        self.processes[pid] = process
        return process

    def fork(self, parent: ModelProcess) -> ModelProcess:
        """A child with the parent's descriptors (the same open files, hence the same RM clients)."""
        child = self.spawn(parent.command, parent=parent.id.pid)
        child.comm, child.user, child.cgroup = parent.comm, parent.user, parent.cgroup
        child.container, child.pid_namespace = parent.container, parent.pid_namespace
        child.fds = {fd: self.rm.share_file(file) for fd, file in parent.fds.items()}
        return child

    def exec(self, process: ModelProcess, command: str, *, keep: Sequence[int] = ()) -> None:
        """Another program in the same process: pid and start stay, close-on-exec descriptors go."""
        self._drop_work(process)
        for fd in [fd for fd in process.fds if fd not in keep]:
            process.close(fd)
        process.command = command
        process.comm = command.split()[0].rsplit("/", 1)[-1][:15]

    def kill(self, process: ModelProcess) -> None:
        """End a process: its descriptors are closed; files that others still hold keep their clients."""
        if not process.alive:
            return
        process.alive = False
        del self.processes[process.id.pid]
        self._drop_work(process)
        for fd in list(process.fds):
            process.close(fd)

    def start_work(self, process: ModelProcess, gpu: GpuModel, workload: Workload) -> None:
        """Let `process` run `workload` in its compute group on `gpu`. ValueError where it has none."""
        for file in process.fds.values():
            if file.is_control:
                for client in self.rm.clients_of(file):
                    for node in client.objects.values():
                        if node.tsg is not None and node.tsg.gpu is gpu and node.tsg.runlist == 0:
                            gpu.timeline.attach(node.tsg, workload)
                            process.workloads.append((gpu, workload))
                            return
        raise ValueError(f"pid {process.id.pid} has no compute context on {gpu.info.uuid}")

    def advance(self, seconds: float) -> None:
        """Let time pass on every GPU."""
        self.now += seconds
        for gpu in self.rm.gpus:
            gpu.timeline.advance(seconds)

    @staticmethod
    def _drop_work(process: ModelProcess) -> None:
        for gpu, workload in process.workloads:
            gpu.timeline.detach(workload)
        process.workloads.clear()
        process.memory.clear()
