# SPDX-License-Identifier: Apache-2.0
"""Which allocations a program may have written, by epochs, from dirty.bpf.c. Never too few.

An epoch ends when it is asked for. What was submitted in it is written in it or later, so it stays dirty in the epochs
that follow until a wait that covers it has ended well: one of its stream, or of the context while there is only one.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import struct
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from detshare.ebpf.bpf import MapKind, MapSpec
from detshare.ebpf.dirty_table import TABLE, WORDS, Kind, entry_of
from detshare.ebpf.epochs import Allocation, Epoch
from detshare.ebpf.images import Image, NotUnderstood, from_file, from_memory, understand
from detshare.ebpf.loader import Loaded, Trouble
from detshare.ebpf.probes import MAPS, Probes
from detshare.ebpf.ptx import Kernel, Word
from detshare.ebpf.ring import Ring

ANYWHERE, GRAPHS = 1, 2
FORWARD = 1 << 63
CONTEXT_SYNC = (1 << 64) - 1
_KEY, _TOUCH = struct.Struct("<IIQQQ"), struct.Struct("<QQ")
_HEAD = struct.Struct("<QIIIiQQQ")
_SYNC_KEY, _SYNC = struct.Struct("<QQ"), struct.Struct("<QQ")
_LAYOUT_KEY = struct.Struct("<QQ")
_LAYOUT_SIZE = 8 + 8 * WORDS
_MOST_KEPT = 1 << 30
_MOST_SPENT_S = 300.0
"""of one process: it shall not use up the observer by what it loads; beyond, its kernels may write anywhere"""
_SCAN = 4096
_SCAN_SIZE = 8 + 2 * _SCAN
_ANY_WORD = 0xFFFFFFFF
_NO_UNLOADS = 0xFFFFFFFF
"""it is not known how many there were; no number that occurs"""
_WORD = struct.Struct("<HHHH")
_RAW = struct.Struct("<QQQQ")
_RAW_PARAMETERS, _RAW_BYTES = 16, 64
_NAME = 4096
_RECORD = _HEAD.size + max(_NAME, _RAW.size + _RAW_PARAMETERS * _RAW_BYTES)
_NR_MEMBARRIER, _MEMBARRIER_GLOBAL = 324, 1
TOUCHES = 1 << 18


@dataclass(frozen=True, slots=True)
class _Touch:
    tid: int
    stream: int
    word: int
    when: int


def _words_of(kernel: Kernel | None, data: bytes, packed: bool, failed: int) -> set[int]:
    """What a launch may have written from; `data`: the begin of its parameters, or of the buffer that holds them all;
    `failed`: a bit for each 64 bytes that could not be read."""
    if kernel is None or kernel.anywhere:
        return {ANYWHERE}
    found = set()
    for each in kernel.words:
        at = each.packed if packed else each.parameter * _RAW_BYTES + each.offset
        inside = packed or (each.parameter < _RAW_PARAMETERS and each.offset + each.size <= _RAW_BYTES)
        parts = range(at // _RAW_BYTES, (at + each.size - 1) // _RAW_BYTES + 1)
        if not inside or at + each.size > len(data) or any(failed >> part & 1 for part in parts):
            return {ANYWHERE}
        found |= {int(struct.unpack_from("<Q", data, at + step)[0]) for step in range(0, each.size - 7, 4)}
    return found


def _fitting(words: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """The same places in as few words as the kernel keeps; None: more than it can look at."""
    if len(words) > WORDS:
        spans: dict[tuple[int, int], Word] = {}
        for each in words:
            key = each.parameter, each.offset % 4
            first = spans.setdefault(key, each)
            spans[key] = replace(first, size=max(first.size, each.offset + each.size - first.offset))
        words = tuple(spans.values())
    fits = len(words) <= WORDS and sum(each.size + 3 for each in words if each.size > 8) <= _SCAN
    return words if fits and all(each.packed < 1 << 16 and each.size <= _SCAN for each in words) else None


@dataclass(slots=True)
class _Pieces:
    """Of the image at an address, as far as they were told; `size`: bytes of all of it, 0: not known yet."""

    address: int
    data: bytearray = field(default_factory=bytearray)
    size: int = 0

    def add(self, offset: int, data: bytes, size: int) -> None:
        self.size = size if offset == len(self.data) else 0
        self.data += data if offset == len(self.data) else b""

    def image(self, devices: Collection[int]) -> Image | None:
        """None: it was not told in full, or there is more of it than was thought."""
        if not self.size or len(self.data) != self.size:
            return None
        with suppress(NotUnderstood):
            return understand(bytes(self.data), devices)
        return None


@dataclass(slots=True)
class _Process:
    whole: bool
    begun: int = 0
    allocations: dict[int, Allocation] = field(default_factory=dict)
    reservations: dict[int, int] = field(default_factory=dict)
    freeing: dict[int, list[Allocation]] = field(default_factory=dict)
    pieces: dict[int, _Pieces] = field(default_factory=dict)
    """by thread, of the image of the module that it tells of next"""
    modules: dict[int, Image | None] = field(default_factory=dict)
    functions: dict[int, Kernel | None] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    contexts: set[int] = field(default_factory=set)
    carried: set[_Touch] = field(default_factory=set)
    captured: set[int] = field(default_factory=set)
    early: set[str] = field(default_factory=set)
    """kernels that were launched before their layout was known, with more parameters than are told then"""
    launched: list[tuple[int, _Touch]] = field(default_factory=list)
    """(epoch, touch) of launches whose layout the kernel did not have yet"""
    calls: dict[int, list[int]] = field(default_factory=dict)
    kept: int = 0
    """bytes of images"""
    spent: float = 0.0
    """seconds of this thread on its images"""


def _grace() -> None:
    """Waits until every BPF program that runs now has ended: MEMBARRIER_CMD_GLOBAL is a grace period of RCU."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_NR_MEMBARRIER, _MEMBARRIER_GLOBAL, 0, 0) < 0:
        time.sleep(0.2)  # nohz_full forbids it; no program of ours runs for longer than microseconds


class DirtyTracer:
    """Watches from its making until it is closed. Not for several threads."""

    def __init__(
        self,
        *,
        only: int | None = None,
        libcuda: Iterable[str] = (),
        touches: int = TOUCHES,
        ring_bytes: int = 1 << 24,
        devices: Iterable[int] = (),
        strict: bool = False,
    ) -> None:
        """`only`: one process; else all. `devices`: architectures of the GPUs here (90 for sm_90); none: any may be.

        `strict`: a kernel of which there is only machine code may write anywhere; else it is taken to write from its
        parameters alone, and the epoch says so (partial). EbpfError."""
        self._devices, self._strict = frozenset(devices), strict
        self._program = Loaded(
            "dirty",
            (
                *MAPS,
                MapSpec("events", MapKind.RINGBUF, 0, 0, ring_bytes),
                MapSpec("epoch", MapKind.ARRAY, 4, 8, 1),
                MapSpec("touched", MapKind.HASH, _KEY.size, _TOUCH.size, touches),
                MapSpec("bounds", MapKind.HASH, 4, 32, 4096),
                MapSpec("threads", MapKind.HASH, 8, 8, 65536),
                MapSpec("syncs", MapKind.HASH, _SYNC_KEY.size, _SYNC.size, 16384),
                MapSpec("layouts", MapKind.HASH, _LAYOUT_KEY.size, _LAYOUT_SIZE, 65536),
                MapSpec("inside", MapKind.HASH, 8, 64, 16384),
                MapSpec("scratch", MapKind.PERCPU_ARRAY, 4, _RECORD, 1),
                MapSpec("scan", MapKind.PERCPU_ARRAY, 4, _SCAN_SIZE, 1),
            ),
            many=("opened", "launched", "wrote", "left"),
        )
        self._extra = tuple(libcuda)
        self._processes: dict[int, _Process] = {}
        self._touched: dict[int, set[_Touch]] = {}
        self._syncs: dict[int, dict[int, tuple[int, int]]] = {}
        self._number = 0
        self._serial = 0
        self._before = Trouble()
        self.how = self._program.how
        try:
            self._ring = Ring(self._program.maps["events"])
            self.probes = Probes(self._program, TABLE, entry_of, "left", only=only)
            self.look()
        except BaseException:
            self._program.close()
            raise

    def look(self) -> int:
        """Attaches to libraries that programs began to use since; how many."""
        return self.probes.look(self._extra)

    # -- events: allocations, modules, functions ----------------------------------------------------------------

    def wait(self, seconds: float) -> bool:
        """True when there is something to take note of within that time."""
        return self._ring.wait(seconds)

    def poll(self, seconds: float = 0.0) -> None:
        """Takes note of allocations and modules; to be called often, for images are read while they are there."""
        self.wait(seconds)
        for data in self._ring.read():
            self._take(data)

    def _process(self, pid: int) -> _Process:
        known = self._processes.get(pid)
        if known is None:
            known = self._processes[pid] = _Process(whole=self.probes.whole(pid))
        return known

    def _take(self, data: bytes) -> None:
        when, pid, tid, number, status, a, b, c = _HEAD.unpack_from(data)
        kind, process = Kind(number), self._process(pid)
        if kind is Kind.IMAGE:
            if b == 0:
                process.pieces[tid] = _Pieces(a)
            if (pieces := process.pieces.get(tid)) is not None:
                pieces.add(b, data[_HEAD.size : _HEAD.size + status], c)
            return
        text = data[_HEAD.size :].split(b"\0")[0].decode("utf-8", "replace") if c or kind is Kind.FUNCTION else ""
        if kind in (Kind.ALLOC, Kind.PITCH, Kind.MAP, Kind.MANAGED):
            self._serial += 1
            how = {Kind.MAP: "mapped", Kind.MANAGED: "managed"}.get(kind, "plain")
            process.allocations[a] = Allocation(a, b, how, c if kind is Kind.MAP else 0, self._serial)
        elif kind is Kind.RESERVE:
            process.reservations[a] = b
        elif kind is Kind.FREEING:
            process.freeing[tid] = [
                each for each in process.allocations.values() if each.address == a or a <= each.address < a + b
            ]
        elif kind is Kind.FREE:
            for each in process.freeing.pop(tid, []):
                if status == 0 and process.allocations.get(each.address) == each:
                    del process.allocations[each.address]
        elif kind is Kind.UNKNOWN:
            stream, epoch, captured, packed = _RAW.unpack_from(data, _HEAD.size)
            # what a function is was told before, in the same ring: of one that is still unknown nothing will be told
            if a not in process.functions:
                self._lay_out(process, pid, a, Kernel(f"at {a:#x}", 0, (), "it was not seen where its program got it"))
            rest = data[_HEAD.size + _RAW.size :]
            known = process.functions.get(a)
            words = _words_of(known, rest, bool(packed), status)
            if ANYWHERE in words and known is not None and not known.anywhere:
                process.early.add(known.name)
            process.launched += [(epoch, _Touch(tid, stream, word, when)) for word in words]
            if captured:
                process.captured |= words
        elif kind is Kind.CONTEXT:
            process.contexts.add(a)
        elif kind is Kind.MODULE:
            pieces = process.pieces.pop(tid, None)
            told = pieces.image(self._devices) if pieces is not None and pieces.address == b and not c else None
            self._module(process, pid, a, b, text if c else None, told)
        elif kind is Kind.FUNCTION:
            self._function(process, pid, a, b, text, c)

    def _module(
        self, process: _Process, pid: int, handle: int, image: int, path: str | None, told: Image | None
    ) -> None:
        """`told`: the image, where it came with the event; else it is read where the program has it."""
        begun = time.thread_time()
        found: Image | None = None
        try:
            if process.kept > _MOST_KEPT:
                raise NotUnderstood(f"its program's images come to more than {_MOST_KEPT >> 20} MiB")
            devices = self._devices
            found = told or (from_file(pid, path, devices) if path is not None else from_memory(pid, image, devices))
            process.kept += found.size
        except NotUnderstood as error:
            process.unknown[str(error)] = process.unknown.get(str(error), 0) + 1
        process.modules[handle] = found
        process.spent += time.thread_time() - begun

    def _function(self, process: _Process, pid: int, handle: int, of: int, name: str, unloads: int) -> None:
        if name:
            image = process.modules.get(of)
            begun = time.thread_time()
            kernel = None if image is None or process.spent > _MOST_SPENT_S else image.kernel(name)
            process.spent += time.thread_time() - begun
            if kernel is None and image is not None and process.spent <= _MOST_SPENT_S:
                kernel = Kernel(name, 0, (), "its image does not have it")
            if kernel is not None and kernel.assumed and self._strict:
                kernel = replace(kernel, anywhere=kernel.anywhere or kernel.assumed)
        elif of in process.modules:  # a library's module: the same kernels
            process.modules[handle] = process.modules[of]
            return
        else:
            kernel = process.functions.get(of)
        self._lay_out(process, pid, handle, kernel, unloads)

    def _lay_out(
        self, process: _Process, pid: int, handle: int, kernel: Kernel | None, unloads: int = _NO_UNLOADS
    ) -> None:
        """From now on the kernel knows what launches of a function may write; None: anything. `unloads`: there were so
        many when its program got it, for after another one the handle may be another function's."""
        if kernel is not None and not kernel.anywhere and _fitting(kernel.words) is None:
            kernel = replace(kernel, anywhere="it has more parameters than a probe looks at")
        process.functions[handle] = kernel
        layouts, key = self._program.maps["layouts"], _LAYOUT_KEY.pack(pid, handle)
        packed = struct.pack("<II", _ANY_WORD, unloads & _ANY_WORD)
        if kernel is not None and not kernel.anywhere and (words := _fitting(kernel.words)) is not None:
            packed = struct.pack("<II", len(words), unloads & _ANY_WORD)
            packed += b"".join(_WORD.pack(each.parameter, each.offset, each.packed, each.size) for each in words)
        with suppress(OSError):  # a full table: its launches may write anywhere
            layouts.set(key, packed.ljust(_LAYOUT_SIZE, b"\0"))

    # -- epochs -------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Ends the epoch of all processes and begins the next; the number of the one that ended."""
        program, ended = self._program.maps, self._number
        self._number += 1
        program["epoch"].set(bytes(4), struct.pack("<Q", self._number))
        _grace()
        self.poll()
        touched = program["touched"]
        self._touched = {}
        for key, value in list(touched.items()):
            pid, tid, stream, word, number = _KEY.unpack(key)
            if number > ended:
                continue
            when, graph = _TOUCH.unpack(value)
            self._touched.setdefault(pid, set()).add(_Touch(tid, stream, word, when))
            if graph:
                self._process(pid).captured.add(word)
            touched.drop(key)
        for pid, process in self._processes.items():
            self._touched.setdefault(pid, set()).update(each for number, each in process.launched if number <= ended)
            process.launched = [(number, each) for number, each in process.launched if number > ended]
        self._syncs = {}
        for key, value in program["syncs"].items():
            pid, stream = _SYNC_KEY.unpack(key)
            began, tid = _SYNC.unpack(value)
            self._syncs.setdefault(pid, {})[stream] = (began, tid)
        for key, value in program["threads"].items():
            word = struct.unpack("<Q", key)[0]
            calls = self._process(word >> 32).calls.setdefault(word & 0xFFFFFFFF, [])
            last = struct.unpack("<Q", value)[0]
            if not calls or calls[-1] < last:
                calls.append(last)
                del calls[:-64]
        return ended

    def epoch(self, pid: int) -> Epoch:
        """What a process may have written in the epoch that cut() ended last; to be asked once for each epoch."""
        process = self._process(pid)
        touches = process.carried | self._touched.get(pid, set())
        words = {each.word for each in touches}
        reasons: list[str] = []
        if GRAPHS in words:
            words |= process.captured
        if ANYWHERE in words:
            reasons += self._why(process)
        process.early.clear()
        trouble = self._program.trouble()
        if trouble != self._before:
            lost = Trouble(*(getattr(trouble, n) - getattr(self._before, n) for n in ("lost", "full", "unread")))
            reasons += lost.words()
        alive = list(process.allocations.values())
        dirty = alive if reasons else self._hit(process, words)
        process.carried = {each for each in touches if not self._finished(process, pid, each)}
        partial = [] if process.whole else ["it began before this trace: earlier allocations are not known"]
        assumed = sorted({each.name for each in process.functions.values() if each is not None and each.assumed})
        if assumed and not self._strict:
            names = ", ".join(assumed[:4]) + (", ..." if len(assumed) > 4 else "")
            partial.append(f"{len(assumed)} kernel(s) taken to write from their parameters alone ({names})")
        return Epoch(pid, self._number - 1, tuple(alive), tuple(dirty), tuple(reasons), tuple(partial))

    def end_epoch(self, pid: int) -> Epoch:
        """cut() and epoch() in one, for one process."""
        self.cut()
        found = self.epoch(pid)
        self.settle()
        return found

    def settle(self) -> None:
        """Every process was asked for its epoch: what was lost so far is told."""
        self._before = self._program.trouble()

    @staticmethod
    def _why(process: _Process) -> list[str]:
        names = sorted({f"{k.name}: {k.anywhere}" for k in process.functions.values() if k is not None and k.anywhere})
        said = [f"kernel {name}" for name in names[:4]]
        said += [f"kernel {name}: launched before its parameters were known" for name in sorted(process.early)[:4]]
        said += [f"{count} module(s) not understood: {why}" for why, count in process.unknown.items()]
        if process.spent > _MOST_SPENT_S:
            said.append(f"reading its images took more than {_MOST_SPENT_S:.0f} s")
        return said or ["a call or a kernel of which we cannot tell where it writes"]

    @staticmethod
    def _hit(process: _Process, words: set[int]) -> list[Allocation]:
        """Allocations that a word points into, or right behind; what is mapped in one reservation counts as one."""
        starts = sorted(process.allocations)
        found: dict[int, Allocation] = {
            each.address: each for each in process.allocations.values() if each.how == "managed"
        }
        ranges = [(base, base + size) for base, size in process.reservations.items()]
        for each_word in words:
            word, forward = each_word & ~FORWARD, bool(each_word & FORWARD)
            at = bisect.bisect_right(starts, word)
            for index in (at - 1, at - 2):
                if index >= 0:
                    each = process.allocations[starts[index]]
                    if each.address <= word < each.address + each.size + (not forward):
                        found[each.address] = each
            for low, high in ranges:
                if low <= word < high + (not forward):
                    found |= {a: each for a, each in process.allocations.items() if low <= a < high}
        shown = {each.physical for each in found.values() if each.physical}
        found |= {a: each for a, each in process.allocations.items() if each.physical and each.physical in shown}
        return sorted(found.values(), key=lambda each: each.address)

    def _finished(self, process: _Process, pid: int, touch: _Touch) -> bool:
        """Whether a wait covered it: one that began when it had certainly been submitted, and ended well.

        The call that submits is seen when it begins. Its own thread's later wait comes after it; for another thread's,
        it must have been seen to make a further call before that wait began.
        """
        syncs = self._syncs.get(pid, {})
        ways = [touch.stream] if touch.stream != 2 else []  # per-thread streams: one name for several
        if len(process.contexts) <= 1 and process.whole:
            ways.append(CONTEXT_SYNC)
        for stream in ways:
            began, tid = syncs.get(stream, (0, 0))
            submitted = touch.when
            if tid != touch.tid:
                calls = process.calls.get(touch.tid, [])
                position = bisect.bisect_right(calls, touch.when)
                if position == len(calls):
                    continue
                submitted = calls[position]
            if began > submitted:
                return True
        return False

    def programs(self) -> list[int]:
        """Processes that were seen and live."""
        return sorted(pid for pid in self._processes if os.path.exists(f"/proc/{pid}"))

    def forget(self, pid: int) -> None:
        """Drops what is known of a process that has ended."""
        self._processes.pop(pid, None)
        self._program.maps["bounds"].drop(struct.pack("<I", pid))
        for name, form, at in (("layouts", _LAYOUT_KEY, 0), ("syncs", _SYNC_KEY, 0)):
            made = self._program.maps[name]
            for key in [key for key in list(made.keys()) if form.unpack(key)[at] == pid]:
                made.drop(key)
        threads = self._program.maps["threads"]
        for key in [key for key in list(threads.keys()) if struct.unpack("<Q", key)[0] >> 32 == pid]:
            threads.drop(key)

    def trouble(self) -> Trouble:
        """What was lost so far."""
        return self._program.trouble()

    def notes(self) -> list[str]:
        """Why the view is partial; empty when it is whole."""
        return [*self._program.notes, *self._program.trouble().words(), *self.probes.notes()]

    def close(self) -> None:
        """Detaches."""
        with suppress(BufferError):
            self._ring.close()
        self._program.close()
