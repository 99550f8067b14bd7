# SPDX-License-Identifier: Apache-2.0
"""The boards as Python sees them: views over shared pages, and the messages by which a library gets them.

Layout and meaning of every field: board.json. Every scalar is read and written by one aligned access of its size, so
a reader never sees half of a value. This process cannot do atomic read-modify-write, hence two rules: the daemon
stores only byte 3 of `slot.word` (Slot.hold), and it never clears the bits of a dead tenant in other tenants' words:
freeing its slot is enough, each tenant drops bits that no live slot of a higher class stands behind.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from detshare.runtime import board_layout as layout
from detshare.runtime.board_layout import Field

__all__ = [
    "TAKEN",
    "Activity",
    "Attach",
    "Attached",
    "BadBoard",
    "Board",
    "Counters",
    "Policy",
    "PolicyValues",
    "Slot",
    "Tier",
    "create",
    "map_file",
    "monotonic_ns",
]

SIZE = layout.PAGE_BYTES
_CODES = {"u8": "B", "char": "B", "u32": "I", "s32": "i", "u64": "Q"}
_SIZES = {"u8": 1, "char": 1, "u32": 4, "s32": 4, "u64": 8}


class BadBoard(ValueError):
    """A page or message that is not what was expected; the text says what it is and what to do."""


class Tier(NamedTuple):
    """One SM set: kind is layout.TIER_*, sms as board.json says."""

    kind: int
    sms: int


def monotonic_ns() -> int:
    """The clock of all boards, the same for every process of the machine."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Board:
    """A structure in a buffer. `buf` is an mmap or anything writable (read-only is enough to read)."""

    MAGIC = 0
    NAME = ""
    FIELDS: Mapping[str, Field] = {}

    def __init__(self, buf: Any, base: int = 0, size: int = SIZE) -> None:
        view = memoryview(buf).cast("B")
        if len(view) < base + size:
            raise BadBoard(f"{self.NAME} board of {len(view)} bytes, {base + size} needed: remove the file")
        self._bytes = view[base : base + size]
        self._views: dict[str, memoryview[int]] = {
            "B": self._bytes,
            "I": self._bytes.cast("I"),
            "i": self._bytes.cast("i"),
            "Q": self._bytes.cast("Q"),
        }

    def check(self) -> None:
        """BadBoard unless this is such a page of our version."""
        magic, version = self.get("magic"), self.get("version")
        if magic != self.MAGIC:
            raise BadBoard(f"no {self.NAME} board: magic {magic:#x}, expected {self.MAGIC:#x}; remove the file")
        if version != layout.VERSION:
            raise BadBoard(
                f"{self.NAME} board of version {version}, this DetShare speaks {layout.VERSION}: "
                "restart daemon and programs with one version"
            )

    def get(self, name: str, index: int = 0) -> int:
        """One value."""
        field = self.FIELDS[name]
        return self._views[_CODES[field.type]][field.offset // _SIZES[field.type] + index]

    def put(self, name: str, value: int, index: int = 0) -> None:
        """Store one value, whole."""
        field = self.FIELDS[name]
        self._views[_CODES[field.type]][field.offset // _SIZES[field.type] + index] = value

    def array(self, name: str) -> list[int]:
        """All values of an array field."""
        field = self.FIELDS[name]
        first = field.offset // _SIZES[field.type]
        return list(self._views[_CODES[field.type]][first : first + field.count])

    def raw(self, name: str) -> bytes:
        """The bytes of an array of u8 or char."""
        field = self.FIELDS[name]
        return self._bytes[field.offset : field.offset + field.count].tobytes()

    def put_raw(self, name: str, data: bytes) -> None:
        """Store bytes; too long is a ValueError, the rest becomes 0."""
        field = self.FIELDS[name]
        if len(data) > field.count:
            raise ValueError(f"{self.NAME}.{name} holds {field.count} bytes, {len(data)} given")
        self._bytes[field.offset : field.offset + field.count] = data.ljust(field.count, b"\0")

    def address(self, name: str) -> int:
        """Where the field lies in this process (writable buffers only): for registering with a GPU."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._bytes)) + self.FIELDS[name].offset

    def init(self) -> None:
        """Make zeroed memory such a page."""
        self.put("version", layout.VERSION)
        self.put("magic", self.MAGIC)

    def close(self) -> None:
        """Let go of the buffer, so that an mmap can be closed."""
        for view in self._views.values():
            view.release()
        self._bytes.release()


class Slot(Board):
    """One tenant's line of an activity page."""

    NAME = "slot"
    FIELDS = layout.SLOT_FIELDS

    def __init__(self, buf: Any, index: int) -> None:
        self.index = index
        start = layout.ACTIVITY_FIELDS["slots"].offset + index * layout.SLOT_SIZE
        super().__init__(buf, start, layout.SLOT_SIZE)

    @property
    def held(self) -> bool:
        """Is it held by hand?"""
        return bool(self.get("word") & layout.HELD)

    def hold(self, on: bool) -> None:
        """Hold or release by hand: a byte store, atomic beside the tenants' own changes of the other bytes.

        Holds only while the tenant's policy has a lease (Policy.lease).
        """
        # x86 and every little-endian machine: bits 24..31 are byte 3
        self._bytes[self.FIELDS["word"].offset + 3] = layout.HELD_BYTE if on else 0

    def assign(self, pid: int, starttime: int, class_: int) -> None:
        """Give the free slot to a tenant. Higher classes that are active hold it once its library has looked."""
        for name in ("word", "active", "beat", "active_since", "rck_generation"):
            self.put(name, 0)
        self.put("pid", pid)
        self.put("starttime", starttime)
        self.put("class", class_)
        self.put("state", layout.SLOT_LIVE)

    def free(self) -> None:
        """Its process is gone. Bits that it left in other words are dropped by their owners."""
        self.put("state", layout.SLOT_FREE)
        self.put("active", 0)
        self.put("pid", 0)
        self.put("word", 0)


class Activity(Board):
    """<gpu-uuid>.activity."""

    MAGIC = layout.MAGIC_ACTIVITY
    NAME = "activity"
    FIELDS = layout.ACTIVITY_FIELDS

    def __init__(self, buf: Any) -> None:
        super().__init__(buf)
        self.slots = tuple(Slot(buf, index) for index in range(layout.SLOTS))

    def init_for(self, gpu_uuid: bytes) -> None:
        """Make zeroed memory the activity page of a GPU."""
        self.put_raw("gpu_uuid", gpu_uuid)
        self.init()

    def free_slot(self) -> Slot | None:
        """A slot that nobody has, or None when all are taken."""
        return next((slot for slot in self.slots if slot.get("state") == layout.SLOT_FREE), None)

    def close(self) -> None:
        """Let go of the buffer."""
        for slot in self.slots:
            slot.close()
        super().close()


@dataclass(frozen=True, slots=True)
class PolicyValues:
    """What a policy page says. tier_*, mode_busy are in `plan`; times and sizes as named."""

    class_: int = layout.CLASS_NORMAL
    tier_idle: int = 0
    tier_busy: int = 0
    mode_busy: int = layout.MODE_TIER
    linger_us: int = 0
    gate_us: int = 0
    ahead_us: int = 0
    depth: int = 0
    floor_permille: int = 0
    floor_period_us: int = 0
    flags: int = 0
    memory_limit: int = 0
    park: int = 0
    stay_until: int = 0
    room_ms: int = 0
    returns: int = 0
    deep: int = 0
    tiers: tuple[Tier, ...] = (Tier(layout.TIER_FULL, 0),)


_PLAN = layout.PLAN_PARTS
_PLAIN = tuple(f.name for f in fields(PolicyValues) if f.name not in _PLAN and f.name not in ("tiers", "class_"))


def _pack_plan(parts: Mapping[str, int]) -> int:
    word = 0
    for name, (shift, bits) in _PLAN.items():
        if not 0 <= parts[name] < 1 << bits:
            raise ValueError(f"policy.{name} is {parts[name]}, it has {bits} bits")
        word |= parts[name] << shift
    return word


class Policy(Board):
    """<vctx-id>.policy. One writer; any number of readers."""

    MAGIC = layout.MAGIC_POLICY
    NAME = "policy"
    FIELDS = layout.POLICY_FIELDS

    @property
    def epoch(self) -> int:
        """Of the last change; odd while one is written."""
        return self.get("epoch")

    def write(self, **changes: Any) -> int:
        """Change some of PolicyValues' fields; gives the new epoch, which the tenant will acknowledge.

        `tiers` replaces the whole table; an entry in use keeps its place and content. A ValueError changes nothing.
        """
        known = {field.name for field in fields(PolicyValues)}
        if unknown := sorted(set(changes) - known):
            raise ValueError(f"a policy has no {', '.join(unknown)}")
        now = self._values()
        tiers: Sequence[Tier] = changes.get("tiers", now.tiers)
        if len(tiers) > layout.TIERS:
            raise ValueError(f"{len(tiers)} tiers, a policy has room for {layout.TIERS}")
        plain = {name: changes.get(name, getattr(now, name)) for name in _PLAIN}
        plain["class"] = changes.get("class_", now.class_)
        for name, value in plain.items():
            if not 0 <= value < 1 << 8 * _SIZES[self.FIELDS[name].type]:
                raise ValueError(f"policy.{name} cannot be {value}")
        # an odd epoch is what a writer left that died in the middle: go on from there
        odd = self.epoch | 1
        epoch = (odd + 1) & 0xFFFFFFFF
        parts = {name: changes.get(name, getattr(now, name, 0)) for name in _PLAN} | {"epoch": epoch}
        for name in ("tier_idle", "tier_busy"):
            if parts[name] >= len(tiers):
                raise ValueError(f"policy.{name} is {parts[name]}, there are {len(tiers)} tiers")
        plan = _pack_plan(parts)
        self.put("epoch", odd)
        for name, value in plain.items():
            self.put(name, value)
        start = self.FIELDS["tiers"].offset // 4
        for index, tier in enumerate([*tiers, *[Tier(0, 0)] * (layout.TIERS - len(tiers))]):
            for place, value in zip((start + 2 * index, start + 2 * index + 1), tier, strict=True):
                if self._views["I"][place] != value:
                    self._views["I"][place] = value
        self.put("plan", plan)
        self.put("epoch", epoch)
        return epoch

    def read(self, tries: int = 1000) -> PolicyValues:
        """A consistent copy; BadBoard if a writer died in the middle of a change."""
        for _ in range(tries):
            before = self.epoch
            values = self._values()
            if before % 2 == 0 and self.epoch == before:
                return values
        raise BadBoard("the policy is half written: its daemon died while changing it; start a daemon")

    def _values(self) -> PolicyValues:
        plan = self.get("plan")
        parts = {name: plan >> shift & ((1 << bits) - 1) for name, (shift, bits) in _PLAN.items() if name != "epoch"}
        start = self.FIELDS["tiers"].offset // 4
        words = list(self._views["I"][start : start + 2 * layout.TIERS])
        tiers = [Tier(*words[n : n + 2]) for n in range(0, len(words), 2)]
        # entry 0 is the whole GPU, (0, 0); others of that kind at the end are unused
        while len(tiers) > 1 and tiers[-1] == Tier(0, 0):
            tiers.pop()
        plain = {name: self.get(name) for name in _PLAIN}
        return PolicyValues(class_=self.get("class"), tiers=tuple(tiers), **parts, **plain)

    def lease(self, until_ns: int) -> None:
        """Until when a hold by hand counts (monotonic_ns); 0: not at all. No epoch: renew as often as you like."""
        self.put("lease_ns", until_ns)


class Counters(Board):
    """<vctx-id>.counters: the tenant writes, so trust nothing in it."""

    MAGIC = layout.MAGIC_COUNTERS
    NAME = "counters"
    FIELDS = layout.COUNTERS_FIELDS

    def read(self) -> dict[str, int | list[int]]:
        """All fields but magic and version. Each is whole; together they may be some microseconds apart."""
        return {
            name: self.array(name) if field.count else self.get(name)
            for name, field in self.FIELDS.items()
            if name not in ("magic", "version")
        }


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")


def _cut(text: str, size: int) -> bytes:
    """UTF-8 of at most size - 1 bytes, no broken character at the end."""
    return text.encode()[: size - 1].decode("utf-8", "ignore").encode()


@dataclass(frozen=True, slots=True)
class Attach:
    """What a library says of itself. Everything in it is a claim; `version` may be another than ours."""

    version: int
    gpu_uuid: bytes
    pid: int
    sms: int
    sm_step: int
    memory_total: int
    tenant: str
    ahead: bool = False
    """it has no context yet, and will say whether it takes what it is given"""

    @classmethod
    def unpack(cls, data: bytes) -> Attach:
        """BadBoard (a ValueError) if this is no such message. Of another version only `version` means something."""
        if len(data) < 8:
            raise BadBoard(f"request of {len(data)} bytes, {layout.ATTACH_SIZE} expected")
        magic, version = struct.unpack_from("<II", data)
        if magic != layout.MAGIC_ATTACH:
            raise BadBoard(f"no request for boards: magic {magic:#x}, expected {layout.MAGIC_ATTACH:#x}")
        if version != layout.VERSION:
            return cls(version, bytes(16), 0, 0, 0, 0, "")
        if len(data) != layout.ATTACH_SIZE:
            raise BadBoard(f"request of {len(data)} bytes, {layout.ATTACH_SIZE} expected")
        view = _Message(bytearray(data), layout.ATTACH_FIELDS)
        numbers = {name: view.get(name) for name in ("pid", "sms", "sm_step", "memory_total")}
        tenant, ahead = _text(view.raw("tenant")), bool(view.get("ahead"))
        return cls(version=version, gpu_uuid=view.raw("gpu_uuid"), tenant=tenant, ahead=ahead, **numbers)

    def pack(self) -> bytes:
        """The message, as the library sends it."""
        data = bytearray(layout.ATTACH_SIZE)
        view = _Message(data, layout.ATTACH_FIELDS)
        view.put("magic", layout.MAGIC_ATTACH)
        for name in ("version", "pid", "sms", "sm_step", "memory_total", "ahead"):
            view.put(name, getattr(self, name))
        view.put_raw("gpu_uuid", self.gpu_uuid)
        view.put_raw("tenant", _cut(self.tenant, view.FIELDS["tenant"].count))
        return bytes(data)


TAKEN: Final = struct.pack("<I", layout.MAGIC_TAKEN)
"""the library's second message, where its request went ahead of its context: that is there"""


@dataclass(frozen=True, slots=True)
class Attached:
    """The daemon's answer: status 0 and a slot with three descriptors, or an errno and why."""

    status: int
    slot: int = 0
    message: str = ""
    version: int = layout.VERSION

    def pack(self) -> bytes:
        """The message; a text that is too long is cut."""
        data = bytearray(layout.ATTACHED_SIZE)
        view = _Message(data, layout.ATTACHED_FIELDS)
        view.put("magic", layout.MAGIC_ATTACHED)
        for name in ("version", "status", "slot"):
            view.put(name, getattr(self, name))
        view.put_raw("message", _cut(self.message, view.FIELDS["message"].count))
        return bytes(data)

    @classmethod
    def unpack(cls, data: bytes) -> Attached:
        """BadBoard if this is no such answer."""
        if len(data) != layout.ATTACHED_SIZE or struct.unpack_from("<I", data)[0] != layout.MAGIC_ATTACHED:
            raise BadBoard(f"{len(data)} bytes that are no answer of a daemon")
        view = _Message(bytearray(data), layout.ATTACHED_FIELDS)
        return cls(view.get("status"), view.get("slot"), _text(view.raw("message")), view.get("version"))


class _Message(Board):
    NAME = "message"

    def __init__(self, data: bytearray, where: Mapping[str, Field]) -> None:
        self.FIELDS = where
        super().__init__(data, 0, len(data))


def create(path: Path, mode: int = 0o600) -> mmap.mmap:
    """A new zeroed board file, mapped read-write. OSError: ENOSPC where /dev/shm is full, EEXIST where it exists."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, mode)
    try:
        # without it, a full file system is a SIGBUS at the first store
        os.posix_fallocate(descriptor, 0, SIZE)
        return mmap.mmap(descriptor, SIZE)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


@contextmanager
def map_file(path: Path, write: bool = False) -> Iterator[mmap.mmap]:
    """An existing board, mapped. BadBoard if it is too small."""
    descriptor = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < SIZE:
            raise BadBoard(f"{path} has {size} bytes, a board has {SIZE}: remove the file")
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        mapped = mmap.mmap(descriptor, SIZE, access=access)
    finally:
        os.close(descriptor)
    try:
        yield mapped
    finally:
        mapped.close()


if sys.byteorder != "little":
    raise ImportError("the boards' layout is little-endian, as are all machines with a supported GPU")
