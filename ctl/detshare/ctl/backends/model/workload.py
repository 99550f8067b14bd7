# SPDX-License-Identifier: Apache-2.0
"""What model programs ask of the GPU: kernels, when they are submitted, and what became of them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

NEVER = 1 << 100
"""a time (nanoseconds) that does not come"""
BUCKET_NS = 100_000_000
_WINDOW = 10


@dataclass(slots=True)
class Kernel:
    """Times in nanoseconds. `left` shrinks while it runs; preemption does not lose what was done."""

    submitted: int
    work: int
    left: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A program's recent past: latencies of the window asked for (0 where there were none), all requests so far,
    units (requests, images, ...) per second over the last second, and what time it is in the model, in seconds."""

    p50_us: float
    p99_us: float
    count: int
    throughput: float
    time_s: float


class Workload(ABC):
    """A source of kernels. Subclasses set `wake` (when to be called) and put kernels in `queue`."""

    units_per_kernel = 1.0

    def __init__(self, seed: int = 1) -> None:
        self.queue: deque[Kernel] = deque()
        self.wake = NEVER
        self.rested_at = -NEVER
        """when it had nothing submitted last, as of the latest submission"""
        self.submitted = 0
        self.completed = 0
        self.busy = 0
        """nanoseconds on the SMs so far"""
        self.finished: deque[tuple[int, int]] = deque(maxlen=20_000)
        """(when, latency) of each completed kernel"""
        self.random = random.Random(seed)
        self._buckets: dict[int, list[float]] = {}

    @abstractmethod
    def start(self, now: int) -> None:
        """Called once, when attached."""

    @abstractmethod
    def on_wake(self, now: int) -> None:
        """`wake` has come. Must set a later one."""

    def on_done(self, now: int) -> None:  # noqa: B027 - most sources do nothing then
        """The kernel at the head of the queue has just ended and left it."""

    def submit(self, now: int, work: int) -> None:
        work = max(1, work)
        if not self.queue:
            self.rested_at = now
        self.queue.append(Kernel(now, work, work))
        self.submitted += 1

    def ran(self, begin: int, end: int) -> None:
        """Account for time on the SMs."""
        self.busy += end - begin
        number = begin // BUCKET_NS
        while (stop := (number + 1) * BUCKET_NS) < end:
            self._bucket(number)[0] += stop - begin
            begin, number = stop, number + 1
        self._bucket(number)[0] += end - begin

    def done(self, now: int) -> None:
        kernel = self.queue.popleft()
        self.completed += 1
        self.finished.append((now, now - kernel.submitted))
        self._bucket(now // BUCKET_NS)[1] += self.units_per_kernel
        self.on_done(now)

    def share(self, now: int) -> float:
        """Part of the last full second (or of all time, if that is less) on the SMs, 0..1."""
        return self._recent(now, 0) / 1e9

    def reading(self, now: int, window_ns: int) -> Reading:
        """What it measured in the `window_ns` nanoseconds before `now`."""
        recent = sorted(latency for when, latency in self.finished if when >= now - window_ns)
        p50 = recent[len(recent) // 2] / 1000 if recent else 0.0
        p99 = recent[min(len(recent) - 1, len(recent) * 99 // 100)] / 1000 if recent else 0.0
        return Reading(p50, p99, self.completed, self._recent(now, 1), now / 1e9)

    def _bucket(self, number: int) -> list[float]:
        bucket = self._buckets.get(number)
        if bucket is None:
            for old in [n for n in self._buckets if n < number - _WINDOW - 1]:
                del self._buckets[old]
            bucket = self._buckets[number] = [0.0, 0.0]
        return bucket

    def _recent(self, now: int, column: int) -> float:
        """Sum per second over the last ten whole buckets; over the time so far within the first bucket."""
        last = now // BUCKET_NS
        if last == 0:
            return self._buckets.get(0, [0.0, 0.0])[column] * 1e9 / max(now, 1)
        first = max(0, last - _WINDOW)
        total = sum(values[column] for number, values in self._buckets.items() if first <= number < last)
        return total * 1e9 / ((last - first) * BUCKET_NS)


class Latency(Workload):
    """Requests one after another: the next comes `period_us` after the last was answered.

    `launch_us` passes at least between an answer and the next request, as on a real CPU.
    """

    def __init__(
        self,
        kernel_us: float,
        period_us: float = 0.0,
        *,
        launch_us: float = 20.0,
        jitter: float = 0.02,
        seed: int = 1,
    ) -> None:
        super().__init__(seed)
        self._work = round(kernel_us * 1000)
        self._pause = max(period_us, launch_us) * 1000
        self._jitter = jitter

    def start(self, now: int) -> None:
        self.on_done(now)

    def on_wake(self, now: int) -> None:
        self.wake = NEVER
        self.submit(now, self._work)

    def on_done(self, now: int) -> None:
        factor = 1 + self.random.uniform(-self._jitter, self._jitter)
        self.wake = now + max(1, round(self._pause * factor))


class Background(Workload):
    """An endless sequence of kernels whose CPU side prepares the next ones while some run.

    Kernels take `kernel_us` (low, high). `utilization` is the share of the GPU it uses when alone: below 1 the
    CPU side is slower than the GPU, so that small gaps stay and a backlog builds up while others run. At most
    `depth` kernels are queued.
    """

    def __init__(
        self,
        kernel_us: tuple[float, float] = (50.0, 300.0),
        *,
        utilization: float = 1.0,
        depth: int = 32,
        units_per_kernel: float = 1.0,
        seed: int = 1,
    ) -> None:
        super().__init__(seed)
        if not 0 < utilization <= 1 or depth < 1:
            raise ValueError(f"utilization {utilization} must be in (0, 1] and depth {depth} at least 1")
        self._range = kernel_us
        self._utilization = utilization
        self._depth = depth
        self.units_per_kernel = units_per_kernel
        self._prepared = 0
        """when the CPU side has the next kernel ready"""

    def start(self, now: int) -> None:
        self._prepared = now
        self._fill(now)

    def on_wake(self, now: int) -> None:
        self._fill(now)

    def on_done(self, now: int) -> None:
        self._fill(now)

    def _fill(self, now: int) -> None:
        while len(self.queue) < self._depth and self._prepared <= now:
            self.submit(now, round(self.random.uniform(*self._range) * 1000))
            if self._utilization < 1:
                spent = self.random.uniform(*self._range) * 1000 / self._utilization
                self._prepared = max(self._prepared, now) + max(1, round(spent))
        self.wake = self._prepared if len(self.queue) < self._depth else NEVER


class Idle(Workload):
    """A context that submits nothing."""

    def start(self, now: int) -> None:
        self.wake = NEVER

    def on_wake(self, now: int) -> None:
        raise AssertionError("an idle program is never woken")
