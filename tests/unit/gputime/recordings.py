# SPDX-License-Identifier: Apache-2.0
"""A driver whose GPUs have a log that is made up, and recordings of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from detshare.ctl.core.driver import Counts, Descriptor, Gpu, NotAllowed, Opener, ProcessId, Usage
from detshare.ctl.core.gputime import Run, Switch
from detshare.ctl.gputime.recording import GpuRecord, Recording

FIRST = Gpu("GPU-1", 0, "NVIDIA H200", "0000:01:00.0", 140 << 30)
SECOND = Gpu("GPU-2", 1, "NVIDIA H200", "0000:02:00.0", 140 << 30)


def start(at: int, pid: int) -> Switch:
    return Switch(at, pid, pid, starts=True)


def end(at: int, pid: int) -> Switch:
    return Switch(at, pid, pid, starts=False)


@dataclass
class MadeLog:
    """Gives one of `parts` at each reading; then nothing. `begins_ns` 0: it does not know the clock before.

    `drops`: numbers of readings before which records fell.
    """

    parts: Sequence[Sequence[Switch]]
    ends_ns: int
    drops: Sequence[int] = ()
    begins_ns: int = 1
    closed: bool = False
    dropped: int = 0
    _read: int = 0

    def read(self) -> list[Switch]:
        self._read += 1
        self.dropped += self.drops.count(self._read)
        return list(self.parts[self._read - 1]) if self._read <= len(self.parts) else []

    def now_ns(self) -> int:
        return self.ends_ns if self._read else self.begins_ns

    def close(self) -> None:
        self.closed = True


@dataclass
class MadeDriver:
    """detshare.ctl.core.driver.Driver with logs by UUID; one that has none refuses."""

    logs: dict[str, MadeLog]
    commands: dict[int, str] = field(default_factory=dict)
    there: tuple[Gpu, ...] = (FIRST, SECOND)
    proof: str = "unit"
    version: str = "580.159.04"

    def gpus(self) -> list[Gpu]:
        return list(self.there)

    def openers(self) -> list[Opener]:
        return [
            Opener(ProcessId(pid, 1), 1, command, "", "ann", "", "", (), ()) for pid, command in self.commands.items()
        ]

    def switch_log(self, gpu: Gpu) -> MadeLog:
        if gpu.uuid not in self.logs:
            raise NotAllowed("the driver keeps its log for root")
        return self.logs[gpu.uuid]

    def borrow(self, process: ProcessId, fd: int) -> AbstractContextManager[Descriptor]:
        raise NotImplementedError

    def alive(self, process: ProcessId) -> bool:
        raise NotImplementedError

    def find(self, pid: int) -> ProcessId | None:
        raise NotImplementedError

    def newest_client(self) -> int:
        raise NotImplementedError

    def counts(self) -> Counts:
        raise NotImplementedError

    def usage(self, shares: Collection[str] | None = None) -> Usage:
        raise NotImplementedError


def pauses(count: int) -> Iterator[None]:
    for _ in range(count):
        yield None


def recording(runs: Iterable[Run], seconds: float, names: dict[int, str] | None = None, dropped: int = 0) -> Recording:
    gpu = GpuRecord("GPU-1", 0, "NVIDIA H200", 1_000, 1_000 + round(seconds * 1e9), tuple(runs), dropped)
    return Recording("580.159.04", "unit", 1_764_000_000.0, names or {}, (gpu,))


def busy(seconds: float, switches_s: int, pids: Sequence[int]) -> list[Run]:
    """Programs in turns without rest, 85 us between two runs, from the begin of `recording` on."""
    step = round(1e9 / switches_s)
    count = int(seconds * switches_s)
    return [Run(pids[i % len(pids)], 1_000 + i * step, 1_000 + (i + 1) * step - 85_000) for i in range(count)]
