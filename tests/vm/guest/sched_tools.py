# SPDX-License-Identifier: Apache-2.0
"""What the guest's tests of the scheduler share: programs that keep the simulated GPU busy, and its account of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import CLIENTS, PID, TRUTH, leak, row

GR0 = 1
COPY0 = 9  # shares the run list of GR0
SLICE, LEVEL = 2048, genl.DETSHARE_LEVEL_MEDIUM  # what a compute channel group has by itself
IDLE, ACTIVE, GATED, PAUSED = range(4)  # run-state
ORDER, BUCKET = 1, 2  # hold


def tsgs(gpu: int = 0, engines: tuple[int, ...] = (GR0,)) -> list[dict[str, Any]]:
    """The simulated GPU's own account of its channel groups of these engines; numbers as int."""
    header, *lines = (line.split() for line in (TRUTH.parent / f"gpu{gpu}" / "tsgs").read_text().splitlines())
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    found = [{key: int(value, 0) if value[0].isdigit() else value for key, value in each.items()} for each in rows]
    return [each for each in found if each["engine"] in engines]


class Worker:
    """A program of tests/nvclient that has printed `ready`."""

    def __init__(self, program: str, *options: object) -> None:
        words = [str(CLIENTS / program), *map(str, options)]
        # few read its windows: in a slow guest they fill a usual pipe within minutes, and it would wait for ever
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, pipesize=1 << 20)
        try:
            self.ready = self._line()
            assert self.ready["event"] == "ready"
            # one that lives in another's channel group has none of its own
            if program == "nvbackground" and "--join" not in options:
                until(lambda: all(each["gpu_time_us"] for each in self.rows()))
        except BaseException:
            self.end()
            raise

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{self.process.args} ended with {self.process.wait()}"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    @property
    def pid(self) -> int:
        return self.process.pid

    def rows(self) -> list[dict[str, Any]]:
        """Its compute channel groups, as the simulated GPU has them."""
        return [each for each in tsgs() if each["client"] == self.ready["client"]]

    def gpu_us(self) -> int:
        (used,) = gpu_times(self)
        return used

    def off(self) -> int:
        """Channels that are off the run list."""
        return sum(each["off"] for each in self.rows())

    def summary(self) -> dict[str, Any]:
        """Asks it to end: its last line."""
        self.process.send_signal(signal.SIGTERM)
        answer = self._line()
        while answer["event"] != "summary":
            answer = self._line()
        return answer

    def lines(self) -> list[dict[str, Any]]:
        """Asks it to end: all lines that were not read."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate()
        return [json.loads(line) for line in out.splitlines()]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def workers() -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(program: str, *options: object) -> Worker:
        made.append(Worker(program, *options))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.end()


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """worker(PROGRAM, OPTION...): ends with the test; after it nothing may be left."""
    with workers() as make:
        yield make
    until(lambda: tsgs() == [] and leak("clients") == 0 and leak("shadows") == 0)


@pytest.fixture
def family() -> Iterator[genl.DetShare]:
    """The module's family; what a test wrote there is taken away after it."""
    with genl.DetShare() as made:
        yield made
        for dump, take, keys in (
            (made.hold_get, made.hold_del, SUBJECT),
            (made.bucket_get, made.bucket_del, SUBJECT),
            (made.sched_get, made.sched_del, SUBJECT),
            (made.class_get, made.class_del, ("name", "gpu")),
        ):
            for each in map(row, dump()):
                # a program that has ended takes what was written for it along
                with suppress(NetlinkError):
                    take(**{key: each[key] for key in keys if key in each})


SUBJECT = ("kind", "pid", "start_time", "cgroup_id", "tenant")


def of(worker: Worker) -> dict[str, int]:
    """The subject that the worker is."""
    return {"kind": PID, "pid": worker.pid}


def runs(family: genl.DetShare, worker: Worker | None = None) -> list[dict[str, Any]]:
    return [row(message) for message in family.entity_get(worker.pid if worker else None)]


def run_of(family: genl.DetShare, worker: Worker) -> dict[str, Any]:
    (found,) = (each for each in runs(family, worker) if each["client"] == worker.ready["client"])
    return found


def progress(worker: Worker, seconds: float = 0.3) -> int:
    """GPU time that it gets in so long, in microseconds."""
    before = worker.gpu_us()
    time.sleep(seconds)
    return worker.gpu_us() - before


def gpu_times(*workers: Worker, gpu: int = 0) -> list[int]:
    """GPU time that each has had, in microseconds: all of them at the same moment, however slow this guest is."""
    rows = tsgs(gpu)
    return [sum(row["gpu_time_us"] for row in rows if row["client"] == each.ready["client"]) for each in workers]


def shares(*workers: Worker, seconds: float) -> list[int]:
    """GPU time that each gets in so long, in microseconds."""
    before = gpu_times(*workers)
    time.sleep(seconds)
    return [now - was for now, was in zip(gpu_times(*workers), before, strict=True)]


def divided(
    parts: Sequence[object], *workers: Worker, gpu: int = 0, least_s: float, most_s: float, of_time: bool = False
) -> list[int]:
    """GPU time that each had since the call, in microseconds, once these are their parts of what all of them had.

    What this guest did too late the module makes up for in the turns and windows that follow: between `least_s` and
    `most_s` of GPU time the parts come to be as they should, or it does not divide so. `of_time`: parts of the time
    that passed.
    """
    before, begin = gpu_times(*workers, gpu=gpu), time.monotonic()
    used: list[int] = []
    found: list[float] = []

    def told() -> bool:
        nonlocal used, found
        now = gpu_times(*workers, gpu=gpu)
        passed = (time.monotonic() - begin) * 1e6
        used = [is_ - was for is_, was in zip(now, before, strict=True)]
        whole = passed if of_time else sum(used)
        found = [each / max(whole, 1) for each in used]
        return whole >= most_s * 1e6 or (whole >= least_s * 1e6 and found == parts)

    until(told, pause=0.02, said=lambda: used)
    assert found == parts, used
    return used


def long_run() -> bool:
    """Are tests to take the time that the documented figures took?"""
    return os.environ.get("DETSHARE_LONG") == "1"
