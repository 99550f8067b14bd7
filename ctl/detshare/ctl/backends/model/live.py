# SPDX-License-Identifier: Apache-2.0
"""A model machine with three programs that lives in real time, for `detshared --backend model` and the demo."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, ModelDescriptor, ModelDriver, ModelSwitchLog
from detshare.ctl.backends.model.objects import OpenFile
from detshare.ctl.backends.model.workload import Background, Idle, Latency, Reading, Workload
from detshare.ctl.core.driver import Counts, Gpu, Opener, ProcessId, Usage
from detshare.ctl.core.gputime import Switch

LONGEST_STEP_S = 1.0
"""a longer pause between two questions is skipped but for its last second, so that no question takes long"""
READING_S = 2.0
"""latencies of so long before the question are read"""


class _LiveLog(ModelSwitchLog):
    """A log whose GPU is brought to the present before it is read."""

    def __init__(self, model: LiveModel, log: ModelSwitchLog) -> None:
        self._model, self._log = model, log

    @property
    def dropped(self) -> int:  # type: ignore[override]
        return self._log.dropped

    def read(self) -> list[Switch]:
        with self._model.present():
            return self._log.read()

    def now_ns(self) -> int:
        with self._model.present():
            return self._log.now_ns()


class LiveModel(ModelDriver):
    """A ModelDriver whose GPUs advance to the present whenever it is asked anything.

    Runs a decode-like latency program, a training-like background program and an idle notebook on the first GPU, and a
    training on each other one. Safe to use from several threads.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        version: str = "580.159.04",
        gpus: Sequence[Gpu] = (H100,),
    ) -> None:
        super().__init__(version=version, gpus=gpus)
        self._clock = clock
        self._last = clock()
        gib = 1 << 30
        self._program("python3 serve.py --model demo", 6 * gib, Latency(2340, 10_000, seed=11))
        # 2666 images/s alone, as the measured training
        training = Background((50, 300), utilization=0.8, units_per_kernel=2666 / 4571, seed=12)
        self._program("python3 train.py --epochs 90", 21 * gib, training)
        self._program("python3 -m ipykernel_launcher -f kernel.json", gib, Idle())
        for gpu in range(1, len(gpus)):
            work = Background((50, 300), utilization=0.8, units_per_kernel=2666 / 4571, seed=12 + gpu)
            self._program(f"python3 train.py --device {gpu}", 21 * gib, work, gpu)
        self.machine.advance(LONGEST_STEP_S)

    def _program(self, command: str, memory: int, workload: Workload, gpu: int = 0) -> None:
        process = scenario.cuda_process(self, command, gpu=gpu, memory=memory)
        self.machine.start_work(process, self.gpu_models[gpu], workload)

    def catch_up(self) -> None:
        """Advance the machine by the time that passed since it was advanced last.

        What that takes itself is skipped: on a machine so busy that a second of the model takes longer than a second,
        each question would else leave the next one a second to do, and a look asks dozens.
        """
        with self._lock:
            self.machine.advance(min(max(self._clock() - self._last, 0.0), LONGEST_STEP_S))
            self._last = self._clock()

    @contextmanager
    def present(self) -> Iterator[None]:
        """The machine as it is now; it stands still inside."""
        with self._lock:
            self.catch_up()
            yield

    def readings(self) -> dict[int, Reading]:
        """Latencies of the last READING_S and throughput of every program that has submitted work, by pid."""
        with self._lock:
            self.catch_up()
            return {
                pid: workload.reading(gpu.timeline.now, round(READING_S * 1e9))
                for pid, process in self.machine.processes.items()
                for gpu, workload in process.workloads
                if workload.submitted
            }

    def openers(self) -> list[Opener]:
        with self._lock:
            self.catch_up()
            return super().openers()

    def alive(self, process: ProcessId) -> bool:
        with self._lock:
            self.catch_up()
            return super().alive(process)

    @contextmanager
    def borrow(self, process: ProcessId, fd: int) -> Iterator[ModelDescriptor]:
        self.catch_up()
        with super().borrow(process, fd) as descriptor:
            yield descriptor

    def issue(
        self, process: ProcessId, file: OpenFile, client: int, target: int, command: int, params: bytearray
    ) -> int:
        with self._lock:
            self.catch_up()
            return super().issue(process, file, client, target, command, params)

    def newest_client(self) -> int:
        with self._lock:
            self.catch_up()
            return super().newest_client()

    def counts(self) -> Counts:
        with self._lock:
            self.catch_up()
            return super().counts()

    def switch_log(self, gpu: Gpu) -> ModelSwitchLog:
        return _LiveLog(self, super().switch_log(gpu))

    def usage(self, shares: Collection[str] | None = None) -> Usage:
        with self._lock:
            self.catch_up()
            return super().usage(shares)
