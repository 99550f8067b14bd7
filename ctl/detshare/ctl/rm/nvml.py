# SPDX-License-Identifier: Apache-2.0
"""Memory and GPU time per process from NVML; nothing here ever fails, it only knows less."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, Final

from detshare.ctl.core import private
from detshare.ctl.core.driver import Instance, Usage

SILENT_S: Final = 2.0
"""without a new sample of a GPU for so long nobody computes there"""


class Nvml:
    """A lazily opened NVML session.

    NVML itself opens /dev/nvidiactl and the GPUs; it is opened on the first question, so that a program that never
    asks stays off the GPU.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """`wall`: Unix seconds, in which samples are dated."""
        self._clock, self._wall = clock, wall
        self._latest: dict[str, tuple[int, float]] = {}
        """GPU UUID -> its newest sample, and when that was seen first"""
        self._asked: dict[str, float] = {}
        """GPU UUID -> when its samples were asked for last"""
        self._module: ModuleType | None = None
        self._devices: list[tuple[str, Any]] = []
        self._cut: dict[str, Any] = {}
        """GPU UUID -> device of those with MIG on: that changes only while nobody has the GPU open, nor this process"""
        self.problem = ""

    def _open(self) -> ModuleType | None:
        if self._module is None and not self.problem:
            try:
                private.prefer()
                import pynvml

                pynvml.nvmlInit()
                for index in range(pynvml.nvmlDeviceGetCount()):
                    device = pynvml.nvmlDeviceGetHandleByIndex(index)
                    uuid = pynvml.nvmlDeviceGetUUID(device)
                    self._devices.append((uuid if isinstance(uuid, str) else uuid.decode(), device))
                    if _is_cut(pynvml, device):
                        self._cut[self._devices[-1][0]] = device
                self._module = pynvml
            except Exception as error:  # noqa: BLE001 - NVML raises its own hierarchy, ImportError and OSError
                self.problem = f"NVML: {error}"
        return self._module

    def memory_total(self) -> dict[str, int]:
        """GPU UUID -> bytes of GPU memory."""
        nvml = self._open()
        total: dict[str, int] = {}
        for uuid, device in self._devices if nvml else ():
            try:
                total[uuid] = int(nvml.nvmlDeviceGetMemoryInfo(device).total)  # type: ignore[union-attr]
            except Exception:  # noqa: BLE001 - see _open
                continue
        return total

    def instances(self) -> dict[str, tuple[Instance, ...]]:
        """UUID of each GPU with MIG on -> its instances, that may come and go."""
        nvml = self._open()
        return {uuid: tuple(_instances(nvml, device).values()) for uuid, device in self._cut.items()} if nvml else {}

    def usage(self, shares: Collection[str] | None = None) -> Usage:
        """What the last second looked like. `shares`: of which GPUs they are asked for (2 ms each on H200, and the
        rest hardly anything); None: of all."""
        nvml = self._open()
        memory: dict[tuple[int, str], int] = {}
        share: dict[tuple[int, str], float] = {}
        on: dict[tuple[int, str], Instance] = {}
        for uuid, device in self._devices if nvml else ():
            parts = _instances(nvml, device) if uuid in self._cut else {}
            try:
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):  # type: ignore[union-attr]
                    if process.usedGpuMemory is not None:
                        memory[process.pid, uuid] = int(process.usedGpuMemory)
                    if parts and (part := parts.get((process.gpuInstanceId, process.computeInstanceId))) is not None:
                        on[process.pid, uuid] = part
            except Exception:  # noqa: BLE001 - see _open
                pass
            if shares is None or uuid in shares:
                share |= {(pid, uuid): busy for pid, busy in self._shares(nvml, uuid, device).items()}
        return Usage(memory, share, on)

    def _shares(self, nvml: Any, uuid: str, device: Any) -> dict[int, float]:
        """PID -> share of one GPU."""
        now = self._clock()
        paused = uuid in self._asked and now - self._asked[uuid] > SILENT_S
        self._asked[uuid] = now
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device, 0)
        except Exception:  # noqa: BLE001 - "not found" means no sample at all
            return {}
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            newest[sample.pid] = max(newest.get(sample.pid, (0, 0)), (sample.timeStamp, sample.smUtil))
        # A sample older than a second before the newest is of a program that fell silent; where all are silent
        # there is no newer sample at all.
        latest = max((when for when, _ in newest.values()), default=0)
        before, since = self._latest.get(uuid, (0, 0.0))
        if latest != before or not since:
            # nobody asked for a while: it may have been there all that time
            age = max(self._wall() - latest / 1e6, 0.0) if paused else 0.0
            self._latest[uuid] = latest, now - age
        silent = now - self._latest[uuid][1] > SILENT_S
        return {
            pid: busy / 100 if latest - when <= 1_500_000 and not silent else 0.0
            for pid, (when, busy) in newest.items()
        }


def _is_cut(nvml: Any, device: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(device)[0])
    except Exception:  # noqa: BLE001 - a chip without MIG says that it does not support the question
        return False


def _instances(nvml: Any, device: Any) -> dict[tuple[int, int], Instance]:
    """(GPU instance, compute instance) of a GPU with MIG on -> what programs know it by."""
    found: dict[tuple[int, int], Instance] = {}
    try:
        numbers = range(nvml.nvmlDeviceGetMaxMigDeviceCount(device))
    except Exception:  # noqa: BLE001 - see Nvml._open
        return found
    for number in numbers:
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number)
            key = nvml.nvmlDeviceGetGpuInstanceId(part), nvml.nvmlDeviceGetComputeInstanceId(part)
            uuid, name = nvml.nvmlDeviceGetUUID(part), nvml.nvmlDeviceGetName(part)
        except Exception:  # noqa: BLE001 - there is none of that number
            continue
        uuid, name = (each if isinstance(each, str) else each.decode() for each in (uuid, name))
        found[key] = Instance(uuid, name.rpartition("MIG ")[2])
    return found


def architectures() -> frozenset[int]:
    """Of the GPUs here, as 90 for compute capability 9.0; empty where NVML does not tell all of them."""
    try:
        private.prefer()
        import pynvml

        pynvml.nvmlInit()
        try:
            devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            pairs = [pynvml.nvmlDeviceGetCudaComputeCapability(device) for device in devices]
        finally:
            pynvml.nvmlShutdown()  # this process shall not be one that holds a GPU
    except Exception:  # noqa: BLE001 - see Nvml
        return frozenset()
    return frozenset(10 * int(major) + int(minor) for major, minor in pairs)
