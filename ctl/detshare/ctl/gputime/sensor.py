# SPDX-License-Identifier: Apache-2.0
"""The sensor: reads the context-switch log of each GPU, and keeps the last seconds of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from detshare.ctl.core.driver import Driver, DriverError, Gpu, SwitchLog
from detshare.ctl.core.gputime import GpuTime, Run
from detshare.ctl.gputime.meter import Meter

_AGAIN_S: Final = 30.0
"""a log that was refused is asked for again after so long"""


class _Source:
    """One GPU's log and meter."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.meter = Meter(gpu.uuid)
        self.log: SwitchLog | None = None
        self.refused = ""
        self.again_at = float("-inf")


class Sensor:
    """Logs of all GPUs of a driver. Any thread may call any method."""

    def __init__(self, driver: Driver, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver, self._clock = driver, clock
        self._lock = threading.RLock()
        self._sources = {gpu.uuid: _Source(gpu) for gpu in driver.gpus()}
        self._closed = False
        self._began = clock()
        self._cpu_s = 0.0

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(self._sources)

    def refused(self) -> dict[str, str]:
        """GPU UUID -> why its log cannot be read."""
        with self._lock:
            return {uuid: source.refused for uuid, source in self._sources.items() if source.refused}

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU time that reading the logs, and summing them up, took so far."""
        return self._cpu_s

    @property
    def cpu_share(self) -> float:
        """The same as a share of one processor."""
        return self._cpu_s / max(self._clock() - self._began, 1e-9)

    def poll(self, gpu: str) -> list[Run] | None:
        """Read what is new of a GPU; the runs that ended. None where its log cannot be read, or said nothing so far."""
        begun = time.thread_time()
        with self._lock:
            source = self._sources.get(gpu)
            if source is None or self._closed or not self._opened(source):
                return None
            assert source.log is not None
            try:
                switches = source.log.read()
                now_ns = source.log.now_ns()
                if not now_ns:
                    return None
                closed = source.meter.feed(switches, now_ns, source.log.dropped)
            except (DriverError, OSError) as error:
                self._refuse(source, error)
                return None
            self._cpu_s += time.thread_time() - begun
            return closed

    def _opened(self, source: _Source) -> bool:
        if source.log is None and self._clock() >= source.again_at:
            try:
                source.log = self._driver.switch_log(source.gpu)
                source.refused = ""
            except (DriverError, OSError, LookupError) as error:
                self._refuse(source, error)
        return source.log is not None

    def _refuse(self, source: _Source, error: Exception) -> None:
        if source.log is not None:
            with suppress(DriverError, OSError):
                source.log.close()
        source.log, source.refused = None, str(error)
        source.again_at = self._clock() + _AGAIN_S
        source.meter = Meter(source.gpu.uuid)

    def now_ns(self, gpu: str) -> int:
        """The GPU's clock as of the last poll."""
        with self._lock:
            return self._sources[gpu].meter.now_ns

    def since(self, gpu: str, start_ns: int) -> list[Run]:
        """Runs after `start_ns` of the GPU's clock, oldest first, the open one last."""
        with self._lock:
            return self._sources[gpu].meter.since(start_ns)

    def open(self, gpu: str) -> list[Run]:
        """The run that goes on: one, or none."""
        with self._lock:
            return self._sources[gpu].meter.open()

    def sure(self, gpu: str) -> bool:
        """Whether the log tells of everybody who runs: whom it does not know has nothing of the GPU."""
        with self._lock:
            source = self._sources.get(gpu)
            return source is not None and source.log is not None and source.meter.sure

    def times(self, gpu: str, wanting: Mapping[int, float] = MappingProxyType({})) -> Mapping[int, GpuTime]:
        """PID -> what it had of a GPU in the last seconds; empty where the log cannot be read. `wanting`: see Meter."""
        begun = time.thread_time()
        with self._lock:
            source = self._sources.get(gpu)
            if source is None or source.log is None:
                return {}
            found = source.meter.times(wanting)
            self._cpu_s += time.thread_time() - begun
            return found

    def close(self) -> None:
        """Give the logs back. Idempotent."""
        with self._lock:
            self._closed = True
            for source in self._sources.values():
                if source.log is not None:
                    with suppress(DriverError, OSError):
                        source.log.close()
                    source.log = None
