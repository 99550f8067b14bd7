# SPDX-License-Identifier: Apache-2.0
"""The decision log: JSON lines in segments of bounded size, the oldest of which is dropped for each new one.

Each record is one write(2) of one line, so who is killed leaves a torn line at the most, which readers skip. Tenants
are written where they changed since the record before; the first record of a segment about a GPU has them all, so a
segment says what it says without those before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from detshare.ctl.policy.types import MECHANISMS, PCtx, Shape, Snapshot, TenantView
from detshare.ctl.policy.view import in_order

__all__ = ["FOLDER", "Log", "Turn", "lines", "segments", "turns"]

FOLDER: Final = "decisions"
SEGMENT_BYTES: Final = 1 << 20
SEGMENTS: Final = 8
QUIET_BYTES_S: Final = 32 << 10
"""what records in which nothing was decided may take a second; those beyond are left out, and that is said"""
MOST_TICKS: Final = 64
"""without news, in one record"""
_MOST_BYTES: Final = 64 << 20
"""that are read of a file, which may be a device"""
_SUFFIX: Final = ".jsonl"
_VIEW: Final = {field.name: field.default for field in fields(TenantView)}


def _encode(view: TenantView) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, default in _VIEW.items():
        value = getattr(view, name)
        if value != default and name != "name":
            made[name] = value
    if view.shapes:
        made["shapes"] = [[getattr(s, f.name) for f in fields(Shape)] for s in view.shapes]
    return made


def _decode(name: str, data: Mapping[str, Any]) -> TenantView:
    values = dict(data)
    if "shapes" in values:
        values["shapes"] = tuple(Shape(*each) for each in values["shapes"])
    if "by_hand" in values:
        values["by_hand"] = tuple(values["by_hand"])
    return TenantView(name=name, **values)


class Log:
    """Writes. For one thread; OSError only from `open`, what cannot be written later is counted."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES, segments: int = SEGMENTS) -> None:
        self.folder = folder
        self._segment_bytes, self._segments = segment_bytes, segments
        self._descriptor: int | None = None
        self._size = 0
        self._number = 0
        self._seen: dict[str, dict[str, TenantView]] = {}
        """GPU -> tenants as the readers of this segment know them"""
        self._pools: dict[str, tuple[PCtx, ...]] = {}
        self._quiet = 0.0
        self._quiet_at = 0.0
        self._left_out = 0
        self._ticks: dict[str, list[int]] = {}
        """GPU -> ticks since the last record about it, in which nothing changed and nothing was decided"""
        self._last: dict[str, tuple[str, Snapshot, float]] = {}
        """GPU -> the last of these"""
        self.lost = 0
        """records that the disk did not take"""
        self.records = 0

    def open(self) -> None:
        """Make the folder and begin a segment after those that are there. OSError."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._number = max((number for number, _ in segments(self.folder)), default=0)
        self._begin()

    def _begin(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.folder / f"{self._number:08d}{_SUFFIX}", flags, 0o600)
        self._size = 0
        self._seen, self._pools, self._ticks = {}, {}, {}
        for number, path in segments(self.folder):
            if number <= self._number - self._segments:
                with contextlib.suppress(OSError):
                    path.unlink()

    def note(self, kind: str, **values: Any) -> None:
        """Something beside hooks and actions: a switch, a failure, what a person decided."""
        for gpu in list(self._ticks):
            self._flush(gpu)
        self._room_in_segment()
        self._write({"kind": kind, "when": round(time.time(), 3), **values})

    def turn(self, policy: str, now: Snapshot, calls: list[list[Any]], unix: float | None = None) -> None:
        """Hooks that were called with one snapshot.

        Each call: [hook, tenant or None, [[action, what became of it], ...]], actions as `ledger.encode` has them.
        """
        self._room_in_segment()
        quiet = not any(call[2] for call in calls)
        ticks = self._ticks.setdefault(now.gpu, [])
        if quiet and calls == [["on_tick", None, []]] and len(ticks) < MOST_TICKS and self._same(now):
            ticks.append(round(now.now_us))
            self._last[now.gpu] = (policy, now, time.time() if unix is None else unix)
            return
        if quiet and not self._room():
            self._left_out += 1
            return
        record = self._record(policy, now, calls, time.time() if unix is None else unix)
        if self._left_out:
            record["left_out"] = self._left_out
        written = self._write(record)
        if not written:
            return
        self._left_out = 0
        ticks.clear()
        self._quiet += written if quiet else 0
        self._seen[now.gpu] = {each.name: each for each in now.tenants}
        self._pools[now.gpu] = now.pool

    def _flush(self, gpu: str) -> None:
        """Write the ticks that wait, the last of them as a record of its own."""
        ticks = self._ticks.get(gpu)
        if ticks:
            policy, now, unix = self._last[gpu]
            ticks.pop()
            self._write(self._record(policy, now, [["on_tick", None, []]], unix))
            ticks.clear()

    def _same(self, now: Snapshot) -> bool:
        """Whether readers know everything of this snapshot but its time."""
        known = self._seen.get(now.gpu)
        return (
            known is not None
            and len(known) == len(now.tenants)
            and all((was := known.get(each.name)) is each or was == each for each in now.tenants)
            and now.pool == self._pools.get(now.gpu, ())
        )

    def _room(self) -> bool:
        """Whether a record without a decision may be written now."""
        now = time.monotonic()
        self._quiet = max(0.0, self._quiet - (now - self._quiet_at) * QUIET_BYTES_S)
        self._quiet_at = now
        return self._quiet < QUIET_BYTES_S

    def _record(self, policy: str, now: Snapshot, calls: list[list[Any]], unix: float) -> dict[str, Any]:
        record: dict[str, Any] = {
            "kind": "turn",
            "when": round(unix, 3),
            "policy": policy,
            "gpu": now.gpu,
            "now": round(now.now_us),
            "lane": now.lane,
            "sms": now.sms,
            "hour": round(now.hour, 3),
            "can": [name for name in ("rows", "floors") if getattr(now, name)],
        }
        if ticks := self._ticks.get(now.gpu):
            record["ticks"] = ticks
        if now.gpu not in self._seen:
            record["all"] = True
        old = self._seen.get(now.gpu, {})
        tenants = {t.name: _encode(t) for t in now.tenants if (was := old.get(t.name)) is not t and was != t}
        if tenants:
            record["tenants"] = tenants
        if gone := old.keys() - {each.name for each in now.tenants}:
            record["gone"] = sorted(gone)
        if now.pool != self._pools.get(now.gpu, ()):
            record["pool"] = [[each.name, each.sms, each.exclusive, list(each.bound)] for each in now.pool]
        record["calls"] = calls
        return record

    def _room_in_segment(self) -> None:
        if self._size >= self._segment_bytes:
            try:
                self._begin()
            except OSError:
                self._size = 0  # not tried again with each record
                self._seen, self._pools = {}, {}

    def _write(self, record: dict[str, Any]) -> int:
        """Bytes written; 0 where the disk did not take it."""
        if self._descriptor is None:
            self.lost += 1
            return 0
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._descriptor, line)
            if written < len(line):
                os.ftruncate(self._descriptor, self._size)
                written = 0
        except OSError:
            written = 0
        self.lost += not written
        self.records += bool(written)
        self._size += written
        return written

    def close(self) -> None:
        """Idempotent."""
        if self._descriptor is not None:
            for gpu in list(self._ticks):
                self._flush(gpu)
            os.close(self._descriptor)
            self._descriptor = None


def segments(folder: Path) -> list[tuple[int, Path]]:
    """Segments of a log, oldest first."""
    found = [path for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal()]
    return sorted((int(path.stem), path) for path in found)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a folder's segments, or of one file. What is torn or no record is skipped. OSError."""
    for each in [each for _, each in segments(path)] if path.is_dir() else [path]:
        try:
            with each.open("rb") as stream:
                data = stream.read(_MOST_BYTES)
        except FileNotFoundError:
            continue  # dropped meanwhile
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(each)) from error  # a read names no file
        yield {"kind": "segment"}
        for line in data.split(b"\n"):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("kind"), str):
                yield record


@dataclass(frozen=True, slots=True)
class Turn:
    """One record of hooks, with the snapshot they were called with."""

    when: float
    policy: str
    now: Snapshot
    calls: list[list[Any]]
    left_out: int
    """records without a decision that were left out before it"""


def turns(path: Path) -> Iterator[Turn | dict[str, Any]]:
    """Records in order: turns with their snapshots, notes as they are. Turns whose beginning is lost are skipped."""
    tenants: dict[str, dict[str, TenantView]] = {}
    pools: dict[str, tuple[PCtx, ...]] = {}
    for record in lines(path):
        if record["kind"] == "segment":
            tenants, pools = {}, {}
        elif record["kind"] != "turn":
            yield record
        else:
            try:
                before = _ticks(record, tenants, pools)
                turn = _turn(record, tenants, pools)
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            if turn is not None:
                yield from before
                yield turn


def _ticks(
    record: dict[str, Any], tenants: dict[str, dict[str, TenantView]], pools: dict[str, tuple[PCtx, ...]]
) -> list[Turn]:
    """The ticks before a record in which there was no news."""
    gpu, now_us, found = str(record["gpu"]), float(record["now"]), []
    if gpu in tenants and not record.get("all"):
        for tick in record.get("ticks", ()):
            now = _snapshot({**record, "now": tick}, tenants[gpu], pools[gpu])
            when = float(record["when"]) - (now_us - float(tick)) / 1e6
            found.append(Turn(round(when, 3), str(record["policy"]), now, [["on_tick", None, []]], 0))
    return found


def _turn(
    record: dict[str, Any], tenants: dict[str, dict[str, TenantView]], pools: dict[str, tuple[PCtx, ...]]
) -> Turn | None:
    gpu = str(record["gpu"])
    if record.get("all"):
        tenants[gpu], pools[gpu] = {}, ()
    elif gpu not in tenants:
        return None
    mine = tenants[gpu]
    for name in record.get("gone", ()):
        mine.pop(name, None)
    mine.update({name: _decode(name, data) for name, data in record.get("tenants", {}).items()})
    if "pool" in record:
        pools[gpu] = tuple(PCtx(name, sms, alone, tuple(bound)) for name, sms, alone, bound in record["pool"])
    now = _snapshot(record, mine, pools[gpu])
    return Turn(float(record["when"]), str(record["policy"]), now, record["calls"], int(record.get("left_out", 0)))


def _snapshot(record: Mapping[str, Any], mine: Mapping[str, TenantView], pool: tuple[PCtx, ...]) -> Snapshot:
    return Snapshot(
        now_us=float(record["now"]),
        lane=str(record["lane"]),
        sms=int(record["sms"]),
        tenants=tuple(mine[name] for name in sorted(mine, key=in_order)),
        gpu=str(record["gpu"]),
        hour=float(record["hour"]),
        pool=pool,
        rows="rows" in record.get("can", MECHANISMS),
        floors="floors" in record.get("can", MECHANISMS),
    )
