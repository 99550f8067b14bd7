# SPDX-License-Identifier: Apache-2.0
"""Recordings of who had each GPU when: made from the context-switch logs, kept in a file of JSON lines (gzip).

The file's first line says the format, the driver, the GPUs and the programs' names; each other line has runs of one
GPU, [PID, start, end] with times in nanoseconds of that GPU's clock, oldest first.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core.driver import Driver, Gpu, SwitchLog
from detshare.ctl.core.gputime import Run
from detshare.ctl.gputime.runs import RunBook

FORMAT: Final = "detshare-timeline"
VERSION: Final = 1
_LINE: Final = 2000
"""runs of one line of a file"""


class NoRecording(Exception):
    """The file is no recording that this version can read; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """What one GPU did. Times are nanoseconds of its own clock."""

    uuid: str
    minor: int
    name: str
    begin_ns: int
    end_ns: int
    runs: tuple[Run, ...] = ()
    """oldest first, without overlaps; the last one may have gone on beyond the end"""
    dropped: int = 0
    """records that the GPU's log lost"""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def window(self, begin_s: float, length_s: float | None) -> GpuRecord:
        """The part from `begin_s` seconds after its begin on, `length_s` seconds long (None: until the end)."""
        begin = self.begin_ns + round(begin_s * 1e9)
        end = self.end_ns if length_s is None else min(self.end_ns, begin + round(length_s * 1e9))
        cut = (Run(r.pid, max(r.start_ns, begin), min(r.end_ns, end)) for r in self.runs)
        return replace(self, begin_ns=begin, end_ns=end, runs=tuple(r for r in cut if r.end_ns > r.start_ns))


@dataclass(frozen=True, slots=True)
class Recording:
    """Of a machine. `when`: Unix seconds of its begin."""

    driver: str
    proof: str
    """proof level of the driver that told it"""
    when: float
    names: Mapping[int, str]
    """PID -> command line; who began and ended while it was recorded may have none"""
    gpus: tuple[GpuRecord, ...]

    def name(self, pid: int) -> str:
        """The command line without the folder of its program; empty where it is not known."""
        first, space, rest = self.names.get(pid, "").partition(" ")
        return first.rpartition("/")[2] + space + rest


class _Tape:
    """One GPU while it is recorded."""

    def __init__(self, gpu: Gpu, log: SwitchLog) -> None:
        self._gpu, self.log = gpu, log
        self._book, self._runs = RunBook(), list[Run]()
        self._dropped = log.dropped
        self._first = self._dropped
        self._begin, self._began = log.now_ns(), time.monotonic_ns()

    @property
    def count(self) -> int:
        """Runs so far."""
        return len(self._runs)

    def read(self) -> None:
        switches = self.log.read()
        if self.log.dropped != self._dropped:
            self._dropped = self.log.dropped
            self._book.lost()
        self._runs += self._book.feed(switches)

    def end(self) -> GpuRecord:
        self.read()
        elapsed = time.monotonic_ns() - self._began
        now = self.log.now_ns() or elapsed
        # before its first record a real log does not know the GPU's clock
        begin = self._begin or max(now - elapsed, 0)
        gpu, runs = self._gpu, (*self._runs, *self._book.open_runs(now))
        whole = GpuRecord(gpu.uuid, gpu.minor, gpu.name, begin, now, runs, self._dropped - self._first)
        return whole.window(0.0, None)


def record(driver: Driver, gpus: Iterable[Gpu], pauses: Iterable[None], tell: Callable[[int], None]) -> Recording:
    """Read the logs at each of the `pauses`; `tell` hears then how many runs there are so far.

    The logs lose nothing while a pause is short: some 50 ms. DriverError where the driver refuses a log.
    """
    tapes: list[_Tape] = []
    logs: list[SwitchLog] = []
    names = _names(driver)
    try:
        when = time.time()
        for gpu in gpus:
            logs.append(driver.switch_log(gpu))
            tapes.append(_Tape(gpu, logs[-1]))
        for _ in pauses:
            for tape in tapes:
                tape.read()
            tell(sum(tape.count for tape in tapes))
        made = tuple(tape.end() for tape in tapes)
    finally:
        for log in logs:
            log.close()
    return Recording(driver.version, driver.proof, when, {**_names(driver), **names}, made)


def _names(driver: Driver) -> dict[int, str]:
    return {opener.id.pid: opener.command for opener in driver.openers()}


def write(path: Path, recording: Recording) -> None:
    """Into a file. OSError where it cannot be written."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "driver": recording.driver,
        "proof": recording.proof,
        "when": recording.when,
        "names": {str(pid): name for pid, name in recording.names.items()},
        "gpus": [
            {name: getattr(gpu, name) for name in ("uuid", "minor", "name", "begin_ns", "end_ns", "dropped")}
            for gpu in recording.gpus
        ],
    }
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(json.dumps(head) + "\n")
        for number, gpu in enumerate(recording.gpus):
            for at in range(0, len(gpu.runs), _LINE):
                file.write(json.dumps({"gpu": number, "runs": gpu.runs[at : at + _LINE]}) + "\n")


def read(path: Path) -> Recording:
    """From a file. OSError where it cannot be read, NoRecording where it is none."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return _parsed(json.loads(line) for line in file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise NoRecording(f"{path} is no whole gzip file ({error})") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise NoRecording(f"{path} is no recording of a time line ({error!r})") from error


def _parsed(lines: Iterator[Any]) -> Recording:
    head: dict[str, Any] = next(lines, {})
    if head.get("format") != FORMAT or head.get("version") != VERSION:
        raise ValueError(f"format {head.get('format')!r}, version {head.get('version')!r}")
    runs: list[list[Run]] = [[] for _ in head["gpus"]]
    for line in lines:
        runs[line["gpu"]] += (Run(int(pid), int(start), int(end)) for pid, start, end in line["runs"])
    gpus = tuple(
        GpuRecord(
            str(gpu["uuid"]), int(gpu["minor"]), str(gpu["name"]), int(gpu["begin_ns"]), int(gpu["end_ns"]),
            tuple(mine), int(gpu["dropped"]),
        )
        for gpu, mine in zip(head["gpus"], runs, strict=True)
    )  # fmt: skip
    for gpu in gpus:
        if gpu.end_ns < gpu.begin_ns or any(run.end_ns < run.start_ns for run in gpu.runs):
            raise ValueError("a time that ends before it begins")
    names = {int(pid): str(name) for pid, name in head["names"].items()}
    return Recording(str(head["driver"]), str(head["proof"]), float(head["when"]), names, gpus)
