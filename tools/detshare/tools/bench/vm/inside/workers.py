# SPDX-License-Identifier: Apache-2.0
"""Programs of tests/nvclient that work on the simulated GPU, and its own account of the time that each of them got."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from detshare.tools.bench.vm.inside import guest

__all__ = ["Reading", "Spell", "Worker", "attributes", "family", "held", "reading", "run_of", "workers"]

_GPU = Path("/sys/kernel/debug/nvsim/gpu0")
_PATIENCE = 30.0


class Worker:
    """A program that has printed `ready`."""

    def __init__(self, program: str, *words: object) -> None:
        self.program = program
        self.process = guest.start(program, *words)
        self.lines: list[dict[str, Any]] = []
        self.ready = self._line()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise guest.GuestError(f"{self.program} ended with {self.process.wait()}")
        return dict(json.loads(text))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def subject(self) -> dict[str, int]:
        """As netlink names it."""
        return {"kind": genl.DETSHARE_KIND_PID, "pid": self.pid}

    def gpu_us(self) -> int:
        """GPU time of its channel groups; to compare with another's see `reading`."""
        return reading(self).used_us[0]

    def kicks(self) -> int:
        """Stores to its doorbells, exactly."""
        return sum(int(row["kicks"]) for row in self.rows(_table("kicks")))

    def rows(self, table: list[dict[str, str]]) -> list[dict[str, str]]:
        """Those of its client."""
        return [row for row in table if int(row["client"], 0) == self.ready["client"]]

    def summary(self) -> dict[str, Any]:
        """Ask it to end, wait for that; its last line. `lines` are those before."""
        self.process.send_signal(signal.SIGTERM)
        return self.rest()

    def rest(self) -> dict[str, Any]:
        """Wait for its end; its last line."""
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        self.lines = [json.loads(text) for text in out.splitlines()]
        if self.process.wait(_PATIENCE) or not self.lines:
            raise guest.GuestError(f"{self.program} ended with {self.process.returncode}")
        return self.lines[-1]

    def end(self) -> None:
        """kill -9 where it lives."""
        guest.stop(self.process)


@contextlib.contextmanager
def workers(*commands: tuple[object, ...]) -> Iterator[list[Worker]]:
    """Programs that end with the block."""
    made: list[Worker] = []
    try:
        for name, *words in commands:
            made.append(Worker(str(name), *words))
        yield made
    finally:
        for worker in made:
            worker.end()


@contextlib.contextmanager
def family() -> Iterator[genl.DetShare]:
    """The module's family; classes, holds, buckets and orders that were written meanwhile are taken away at the end."""
    with genl.DetShare() as made:
        try:
            yield made
        finally:
            for name in ("hold", "bucket", "sched", "class"):
                for message in getattr(made, f"{name}_get")():
                    row = attributes(message)
                    keys = ("name", "gpu") if name == "class" else ("kind", "pid", "cgroup_id", "tenant")
                    with contextlib.suppress(NetlinkError):
                        getattr(made, f"{name}_del")(**{key: row[key] for key in keys if key in row})


def attributes(message: Any) -> dict[str, Any]:
    """Of a message, by short name."""
    return {name.split("_A_", 1)[1].split("_", 1)[1].lower(): value for name, value in message["attrs"]}


def run_of(link: genl.DetShare, worker: Worker) -> dict[str, Any]:
    """The row of run-get for the worker's client."""
    rows = [attributes(message) for message in link.entity_get(worker.pid)]
    return next(row for row in rows if row["client"] == worker.ready["client"])


def _table(file: str) -> list[dict[str, str]]:
    """What the simulated GPU lists, all of one moment: it writes the list under its lock, at the first read."""
    header, *lines = (line.split() for line in (_GPU / file).read_text(encoding="ascii").splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


class Reading(NamedTuple):
    """GPU time of some programs at one moment."""

    at: float  # CLOCK_MONOTONIC, seconds
    used_us: list[int]


class Spell(NamedTuple):
    """From one reading to another."""

    begin: float
    end: float
    used_us: list[int]

    @property
    def span(self) -> float:
        """Seconds between the two."""
        return self.end - self.begin


def reading(*members: Worker) -> Reading:
    """GPU time of each one's channel groups, as the simulated GPU counts it."""
    begin = time.monotonic()
    table = _table("tsgs")
    at = (begin + time.monotonic()) / 2
    return Reading(at, [sum(int(row["gpu_time_us"]) for row in member.rows(table)) for member in members])


def held(seconds: float, *members: Worker) -> Spell:
    """GPU time that each gets in so long."""
    first = reading(*members)
    time.sleep(seconds)
    last = reading(*members)
    return Spell(first.at, last.at, [now - was for now, was in zip(last.used_us, first.used_us, strict=True)])
