# SPDX-License-Identifier: Apache-2.0
"""What was there before DetShare touched it, on disk before anything is touched.

One line of JSON per fact, appended to a file in the run directory: whoever is killed when, the guardian or the next
daemon finds everything that must be put back. Facts name a process by PID and start time and a TSG by handle and
hardware number, so that nothing else can be hit later. Each driver (real, model) has a file of its own.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from detshare.ctl.core.driver import ProcessId

_COMPACT_AFTER = 4096


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
    """The journal of one run directory about one driver ("gpu" or "model")."""

    def __init__(self, run_dir: Path, driver: str) -> None:
        self.path = run_dir / f"journal-{driver}.jsonl"
        self.slices: dict[tuple[ProcessId, int, int], Before] = {}
        self.paused: dict[ProcessId, list[Paused]] = {}
        self.turned: dict[ProcessId, list[Paused]] = {}
        """channels of programs that take turns: any of them may be off at this moment"""
        self._lock = threading.RLock()
        """the thread of the turns writes too"""
        self._lines = 0
        self._load()

    def _load(self) -> None:
        try:
            lines = self.path.read_bytes().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                self._apply(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
                continue  # a line that was cut off: its writer was stopped before it acted on it
        self._lines = len(lines)

    def _apply(self, record: dict[str, Any]) -> None:
        kind = record.pop("record")
        if kind == "slice":
            before = Before(**record)
            self.slices[before.process, before.client, before.tsg] = before
        elif kind == "pause":
            paused = Paused(**{**record, "channels": tuple(record["channels"])})
            self.paused.setdefault(paused.process, []).append(paused)
        elif kind == "turn":
            turned = Paused(**{**record, "channels": tuple(record["channels"])})
            self.turned.setdefault(turned.process, []).append(turned)
        elif kind == "unturn":
            self.turned.pop(ProcessId(record["pid"], record["start"]), None)
        elif kind == "unpause":
            self.paused.pop(ProcessId(record["pid"], record["start"]), None)
        elif kind == "forget-tsg":
            self.slices.pop((ProcessId(record["pid"], record["start"]), record["client"], record["tsg"]), None)
        elif kind == "forget":
            self._drop(ProcessId(record["pid"], record["start"]))

    def _drop(self, process: ProcessId) -> bool:
        keys = [key for key in self.slices if key[0] == process]
        for key in keys:
            del self.slices[key]
        off = [table.pop(process, None) is not None for table in (self.paused, self.turned)]
        return any(off) or bool(keys)

    def _write(self, kind: str, **values: Any) -> None:
        """Append one fact, whole or not at all. OSError where the disk does not take it."""
        with self._lock:
            self._append(kind, values)

    def _append(self, kind: str, values: dict[str, Any]) -> None:
        data = json.dumps({"record": kind, **values}, separators=(",", ":")).encode() + b"\n"
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # never glued to a line that somebody was killed in
            if os.write(fd, data) != len(data):
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, "the journal takes no more facts, so nothing is changed", str(self.path))
        finally:
            os.close(fd)
        self._lines += 1

    def _keep_short(self) -> None:
        """Rewrite a file that has grown long; only once the last fact is part of what is kept in memory."""
        if self._lines > _COMPACT_AFTER:
            self.compact()

    def remember(self, before: Before) -> None:
        """Keep how a TSG was found; the same fact again writes nothing, another one replaces it."""
        key = (before.process, before.client, before.tsg)
        if self.slices.get(key) != before:
            self._write("slice", **asdict(before))
            self.slices[key] = before
            self._keep_short()

    def before(self, process: ProcessId, client: int, tsg: int) -> Before | None:
        """How a TSG was found."""
        return self.slices.get((process, client, tsg))

    def pause(self, paused: Paused) -> None:
        """Say that channels are about to be switched off."""
        self._write("pause", **asdict(paused))
        self.paused.setdefault(paused.process, []).append(paused)
        self._keep_short()

    def may_turn(self, process: ProcessId, facts: Iterable[Paused]) -> None:
        """Say that channels may be off from now on; what was said before is not said again."""
        with self._lock:
            known = {(p.fd, p.client, p.subdevice, c) for p in self.turned.get(process, ()) for c in p.channels}
            for fact in facts:
                if not {(fact.fd, fact.client, fact.subdevice, c) for c in fact.channels} <= known:
                    self._write("turn", **asdict(fact))
                    self.turned.setdefault(process, []).append(fact)
            self._keep_short()

    def never_turns(self, process: ProcessId) -> None:
        """Say that a program takes no part in turns any more, and runs."""
        with self._lock:
            if process in self.turned:
                self._write("unturn", pid=process.pid, start=process.start)
                del self.turned[process]

    def unpause(self, process: ProcessId) -> None:
        """Say that all channels of a process run again. Where the disk does not take it they do all the same: whoever
        reads the file later switches them on once more, which does no harm."""
        if process in self.paused:
            del self.paused[process]
            with suppress(OSError):
                self._write("unpause", pid=process.pid, start=process.start)

    def forget_tsg(self, before: Before) -> None:
        """Say that one TSG is gone, or was put back."""
        key = (before.process, before.client, before.tsg)
        if key in self.slices:
            self._write("forget-tsg", pid=before.pid, start=before.start, client=before.client, tsg=before.tsg)
            del self.slices[key]

    def forget(self, process: ProcessId) -> None:
        """Say that nothing of a process remains to be put back."""
        if process in self.paused or process in self.turned or any(key[0] == process for key in self.slices):
            self._write("forget", pid=process.pid, start=process.start)
            self._drop(process)

    def rehome(self, old: ProcessId, new: ProcessId, fds: dict[int, int]) -> None:
        """Another process holds the same descriptors (a fork's child): what is to be put back is reached through it.

        `fds`: client -> descriptor number in the new process; facts about other clients stay where they are.
        """
        for paused in list(self.paused.get(old, ())):
            if paused.client in fds:
                self.pause(replace(paused, pid=new.pid, start=new.start, fd=fds[paused.client]))
        self.may_turn(new, [replace(turned, pid=new.pid, start=new.start, fd=fds[turned.client])
                            for turned in list(self.turned.get(old, ())) if turned.client in fds])  # fmt: skip
        for key, before in list(self.slices.items()):
            if key[0] == old and before.client in fds:
                self.remember(replace(before, pid=new.pid, start=new.start, fd=fds[before.client]))

    def processes(self) -> list[ProcessId]:
        """Every process of which something would have to be put back, paused ones first."""
        with self._lock:
            return list(dict.fromkeys([*self.paused, *self.turned, *(key[0] for key in self.slices)]))

    def compact(self) -> None:
        """Rewrite the file with what still counts."""
        with self._lock:
            self._compact()

    def _compact(self) -> None:
        records = [{"record": "slice", **asdict(before)} for before in self.slices.values()]
        records += [{"record": "pause", **asdict(p)} for group in self.paused.values() for p in group]
        records += [{"record": "turn", **asdict(p)} for group in self.turned.values() for p in group]
        draft = self.path.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as stream:
            stream.write("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records))
        draft.chmod(0o600)
        draft.replace(self.path)
        self._lines = len(records)

    def clear(self) -> None:
        """Everything was put back."""
        self.slices.clear()
        self.paused.clear()
        self.turned.clear()
        self.path.unlink(missing_ok=True)
        self._lines = 0
