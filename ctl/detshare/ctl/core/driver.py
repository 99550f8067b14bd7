# SPDX-License-Identifier: Apache-2.0
"""What the control plane needs of a driver: who holds GPU descriptors, and a way to ask on them.

Two implementations: `detshare.ctl.rm.kernel` (the real one: /proc, pidfd, ioctl) and
`detshare.ctl.backends.model` (in process, strict, for tests and machines without a GPU).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from detshare.ctl.core.gputime import Switch


class ProcessId(NamedTuple):
    """A process that cannot be confused with a later one of the same number.

    `start` is field 22 of /proc/PID/stat: clock ticks since boot.
    """

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Opener:
    """A process that has descriptors of /dev/nvidia*, its own or its parent's."""

    id: ProcessId
    parent: int
    command: str
    """argv joined by spaces; the bracketed comm for a process without argv"""
    comm: str
    user: str
    cgroup: str
    container: str
    """64 hex digits of a container id found in the cgroup path, or empty"""
    control_fds: tuple[int, ...]
    """descriptor numbers of /dev/nvidiactl in that process"""
    device_fds: tuple[tuple[int, int], ...]
    """(descriptor number, GPU minor) of /dev/nvidiaN in that process"""
    pid_namespace: int = 0
    """inode of the process's pid namespace"""


@dataclass(frozen=True, slots=True)
class Instance:
    """A part of a GPU that MIG cut, as programs name it by CUDA_VISIBLE_DEVICES."""

    uuid: str
    profile: str
    """such as 1g.10gb"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine. `memory_bytes` is 0 where unknown."""

    uuid: str
    minor: int
    name: str
    pci: str
    memory_bytes: int = 0
    mig: tuple[Instance, ...] | None = None
    """its instances; None: it is whole, or nobody knows"""


class Counts(NamedTuple):
    """How many RM clients and objects are alive in the whole driver."""

    clients: int
    objects: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What NVML says of processes. Missing keys are unknown, not zero."""

    memory_bytes: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """(pid, GPU UUID) -> bytes of GPU memory"""
    gpu_share: Mapping[tuple[int, str], float] = field(default_factory=dict)
    """(pid, GPU UUID) -> share of the last second in which its kernels had the SMs, 0..1"""
    instance: Mapping[tuple[int, str], Instance] = field(default_factory=dict)
    """(pid, GPU UUID) -> the instance of that GPU that it is on"""


class DriverError(Exception):
    """Base of what a driver raises; the message says what was asked, what stopped it and what to do."""


class ProcessGone(DriverError):
    """The process ended, or its number belongs to another process now."""


class DescriptorGone(DriverError):
    """The process lives, but that descriptor was closed or is another file now."""


class NotAllowed(DriverError):
    """The kernel refused: the caller lacks root or CAP_SYS_PTRACE over the process."""


class DriverAbsent(DriverError):
    """No NVIDIA driver is loaded here."""


class Descriptor(Protocol):
    """A duplicate of a tenant's /dev/nvidiactl descriptor.

    While one is open the tenant's RM clients outlive the tenant, so it is held for the length of one
    operation only.
    """

    def control(self, client: int, target: int, command: int, params: bytearray) -> int:
        """Issue NV_ESC_RM_CONTROL; the answer is written into `params`. Returns the RM status.

        The driver writes a line into the kernel log where no client `client` exists: ask owns() first.
        OSError where the ioctl itself fails.
        """
        ...

    def owns(self, client: int) -> bool:
        """Whether an RM client of this handle was made on this descriptor's file. No answer to this question is
        logged by the driver. DriverError where it says neither.
        """
        ...


class SwitchLog(Protocol):
    """The log of context switches of one GPU, of all programs, from its opening on."""

    @property
    def dropped(self) -> int:
        """Records that were lost because nobody read them in time."""
        ...

    def read(self) -> list[Switch]:
        """What was written since the last call, oldest first. NotAllowed where the driver refuses it by now."""
        ...

    def now_ns(self) -> int:
        """The GPU's clock, in which records are written."""
        ...

    def close(self) -> None: ...


class Driver(Protocol):
    """A machine's NVIDIA driver."""

    @property
    def proof(self) -> str:
        """Proof level of what is seen through it: "gpu", "driver" or "model"."""
        ...

    @property
    def version(self) -> str:
        """The driver's version string, such as 580.159.04."""
        ...

    def gpus(self) -> list[Gpu]: ...

    def openers(self) -> list[Opener]:
        """Every process that holds a descriptor of /dev/nvidia*, except the caller. Never raises for one that ends
        meanwhile."""
        ...

    def borrow(self, process: ProcessId, fd: int) -> AbstractContextManager[Descriptor]:
        """Duplicate descriptor `fd` of `process` for the length of a `with` block.

        ProcessGone, DescriptorGone, NotAllowed.
        """
        ...

    def alive(self, process: ProcessId) -> bool: ...

    def find(self, pid: int) -> ProcessId | None:
        """The living process that has this number now, GPU user or not."""
        ...

    def newest_client(self) -> int:
        """Handle of an RM client made (and freed) just now: every living client is older."""
        ...

    def counts(self) -> Counts:
        """A change means that something was made or freed."""
        ...

    def usage(self, shares: Collection[str] | None = None) -> Usage:
        """`shares`: GPUs (UUIDs) whose programs' shares are asked for, a question that costs milliseconds for each;
        None: all."""
        ...

    def switch_log(self, gpu: Gpu) -> SwitchLog:
        """Open the log of a GPU. NotAllowed where the driver refuses it; the message says why."""
        ...
