# SPDX-License-Identifier: Apache-2.0
"""What was there before DetShare touched it, on disk before anything is touched.

One line of JSON per fact, written with a single write(2) to a file in the run directory: whoever is killed when, the
guardian or the next daemon finds everything that must be put back. Facts name a process by PID and start time and a
TSG by handle and hardware number, so that nothing else can be hit later.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from detshare.ctl.rm.driver import ProcessId

NAME = "journal.jsonl"
_COMPACT_AFTER = 4096
_RECORDS = ("slice", "pause", "unpause", "forget")


@dataclass(frozen=True, slots=True)
class Before:
    """A TSG as it was found. Its level is not here: the driver cannot be asked; its default is MEDIUM."""

    pid: int
    start: int
    fd: int
    client: int
    tsg: int
    tsg_id: int
    gpu: str
    slice_us: int

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


@dataclass(frozen=True, slots=True)
class Paused:
    """Channels below one subdevice that were, or were about to be, switched off."""

    pid: int
    start: int
    fd: int
    client: int
    subdevice: int
    channels: tuple[int, ...]

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the journal for a while: daemon, guardian and one-shot commands take turns to undo and to write."""
    fd = os.open(run_dir / "journal.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class Journal:
    """The journal of one run directory. `driver` names what it is about: a guardian leaves another's alone."""

    def __init__(self, run_dir: Path, driver: str) -> None:
        self.path = run_dir / NAME
        self.driver = driver
        self.slices: dict[tuple[ProcessId, int, int], Before] = {}
        self.paused: dict[ProcessId, list[Paused]] = {}
        self.foreign = False
        """written about another driver (a model, say): nothing in it is ours"""
        self._lines = 0
        self._load()

    def _load(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        for number, line in enumerate(lines):
            try:
                record = json.loads(line)
                if number == 0 and record.get("driver") != self.driver:
                    self.foreign = True
                    return
                self._apply(record)
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # a torn last line of someone who was killed while writing; what it announced did not happen
        self._lines = len(lines)

    def _apply(self, record: dict[str, Any]) -> None:
        kind = record.pop("record", None)
        if kind not in _RECORDS:
            return
        if kind == "slice":
            before = Before(**record)
            self.slices[before.process, before.client, before.tsg] = before
        elif kind == "pause":
            paused = Paused(**{**record, "channels": tuple(record["channels"])})
            self.paused.setdefault(paused.process, []).append(paused)
        else:
            process = ProcessId(record["pid"], record["start"])
            self.paused.pop(process, None)
            if kind == "forget":
                for key in [k for k in self.slices if k[0] == process]:
                    del self.slices[key]

    def _write(self, kind: str, **values: Any) -> None:
        if not self._lines:
            self._append({"record": "open", "driver": self.driver})
        self._append({"record": kind, **values})
        if self._lines > _COMPACT_AFTER:
            self.compact()

    def _append(self, record: dict[str, Any]) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(record, separators=(",", ":")).encode() + b"\n")
        finally:
            os.close(fd)
        self._lines += 1

    def remember(self, before: Before) -> None:
        """Keep how a TSG was found; the same fact again writes nothing, another one replaces it."""
        key = (before.process, before.client, before.tsg)
        if self.slices.get(key) != before:
            self._write("slice", **asdict(before))
            self.slices[key] = before

    def before(self, process: ProcessId, client: int, tsg: int) -> Before | None:
        return self.slices.get((process, client, tsg))

    def pause(self, paused: Paused) -> None:
        """Say that channels are about to be switched off."""
        self._write("pause", **asdict(paused))
        self.paused.setdefault(paused.process, []).append(paused)

    def unpause(self, process: ProcessId) -> None:
        """Say that all channels of a process run again."""
        if self.paused.pop(process, None) is not None:
            self._write("unpause", pid=process.pid, start=process.start)

    def forget(self, process: ProcessId) -> None:
        """Say that nothing of a process remains to be put back."""
        keys = [k for k in self.slices if k[0] == process]
        if keys or process in self.paused:
            for key in keys:
                del self.slices[key]
            self.paused.pop(process, None)
            self._write("forget", pid=process.pid, start=process.start)

    def processes(self) -> list[ProcessId]:
        """Every process of which something would have to be put back, paused ones first."""
        return list(dict.fromkeys([*self.paused, *(key[0] for key in self.slices)]))

    def compact(self) -> None:
        """Rewrite the file with what still counts."""
        records = [{"record": "open", "driver": self.driver}]
        records += [{"record": "slice", **asdict(before)} for before in self.slices.values()]
        records += [{"record": "pause", **asdict(p)} for group in self.paused.values() for p in group]
        draft = self.path.with_suffix(".new")
        draft.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records), encoding="utf-8")
        draft.chmod(0o600)
        draft.replace(self.path)
        self._lines = len(records)

    def clear(self) -> None:
        """Everything was put back."""
        self.slices.clear()
        self.paused.clear()
        self.path.unlink(missing_ok=True)
        self._lines = 0
