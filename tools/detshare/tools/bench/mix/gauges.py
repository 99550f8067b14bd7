# SPDX-License-Identifier: Apache-2.0
"""The GPU's clocks and power, and the daemon's CPU time, while a cell runs: what no scheduler of ours sets."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pynvml

from detshare.tools.bench.stats import percentile
from detshare.tools.bench.steer import SENSOR

__all__ = ["Gauge", "Gauges", "cpu_seconds"]

EVERY = 0.05
"""seconds between two readings of NVML"""


@dataclass(frozen=True)
class Gauge:
    """Of one interval: SM clock in MHz (median, least) and board power in W (greatest) of the busiest GPU's board,
    and the daemon's CPU time in seconds per second, all of it and what reads the switch logs. 0.0 MHz and W: NVML does
    not say; no `sensor_cpu`: the daemon does not."""

    sm_mhz: float
    least_sm_mhz: float
    power_w: float
    daemon_cpu: float
    sensor_cpu: float | None = None


def cpu_seconds(pid: int | None) -> float:
    """CPU time of a process so far, all its threads (proc(5), /proc/PID/stat); 0.0 where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Gauges:
    """Use as a context: a thread reads GPU 0 every 50 ms. What NVML refuses is left out."""

    def __init__(self, pid: int | None, mark: Callable[..., None], threads: Callable[[], dict[str, float]]) -> None:
        """`pid`: the daemon's; `mark` keeps the readings for the raw file; `threads`: its CPU time by thread."""
        self._pid, self._mark, self._threads = pid, mark, threads
        self._stop = threading.Event()
        self._found: list[tuple[float, int, float]] = []
        self._thread = threading.Thread(target=self._look, name="gauges", daemon=True)

    def __enter__(self) -> Gauges:
        self._before = self._by_thread()
        self._begin, self._cpu = time.monotonic(), cpu_seconds(self._pid)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds, used = time.monotonic() - self._begin, cpu_seconds(self._pid) - self._cpu
        self._stop.set()
        self._thread.join(5.0)
        spent = {name: round(now - self._before.get(name, 0.0), 3) for name, now in self._by_thread().items()}
        clocks, power = [mhz for _, mhz, _ in self._found], [watts for *_, watts in self._found]
        self.seen = Gauge(
            percentile(clocks, 50) if clocks else 0.0,
            float(min(clocks, default=0)),
            max(power, default=0.0),
            max(0.0, used / seconds),
            spent[SENSOR] / seconds if SENSOR in spent else None,
        )
        self._mark(
            "gauges",
            begin=round(self._begin, 6),
            at=[round(at - self._begin, 3) for at, *_ in self._found],
            sm_mhz=clocks,
            power_w=[round(watts) for watts in power],
            threads=spent,
        )

    def _by_thread(self) -> dict[str, float]:
        return self._threads() if self._pid is not None else {}

    def _look(self) -> None:
        device: Any = None
        try:
            pynvml.nvmlInit()
            device = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not self._stop.wait(EVERY):
                mhz = int(pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM))
                watts = pynvml.nvmlDeviceGetPowerUsage(device) / 1000
                self._found.append((time.monotonic(), mhz, watts))
        except pynvml.NVMLError:
            return
