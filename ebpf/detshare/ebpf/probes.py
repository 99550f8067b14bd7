# SPDX-License-Identifier: Apache-2.0
"""Probes on exported functions of libcuda: what each argument means, and attaching to every libcuda in use."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from detshare.ctl.core import procfs
from detshare.ebpf import elf, libraries
from detshare.ebpf.bpf import MapKind, MapSpec
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.libraries import Found
from detshare.ebpf.loader import Loaded

_PACKED = struct.Struct("<HBBBBBBIIQQQ")
MOST = 1024
LEGACY, PER_THREAD = 1, 2
MAPS = (MapSpec("probes", MapKind.ARRAY, 4, _PACKED.size, MOST), MapSpec("only", MapKind.ARRAY, 4, 4, 1))
_VARIANT = re.compile(r"(?P<version>_v\d+)?(?P<thread>_ptsz|_ptds)?")


@dataclass(frozen=True, slots=True)
class Shape:
    """How a function's arguments are read, by their numbers from 1; struct ds_probe. 0: it has none of that kind.

    `timed`: the return is watched too. `old`: under its bare name, beside a _v2, the function has 32-bit sizes.
    """

    kind: int
    stream: int = 0
    target: int = 0
    bytes: int = 0
    second: int = 0
    third: int = 0
    scale: int = 0
    timed: bool = False
    old: bool = False


def variants(name: str, exported: Collection[str]) -> list[tuple[str, bool, bool]]:
    """(exported name, legacy, per-thread) of all forms of a function: NAME, NAME_v2, NAME_v2_ptsz, ..."""
    found = []
    for full in exported:
        if not full.startswith(name):
            continue
        match = _VARIANT.fullmatch(full, len(name))
        if match:
            legacy = match["version"] is None and f"{name}_v2" in exported
            found.append((full, legacy, match["thread"] is not None))
    return sorted(found)


class Gone(Exception):
    """Who had a library mapped, by whose path it was found, has it no more. Others may."""


@contextmanager
def held(found: Found) -> Iterator[str]:
    """A path of the library that stays good while the block runs, whoever ends meanwhile. Gone, EbpfError."""
    try:
        descriptor = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise Gone from error
    except OSError as error:
        raise EbpfError(f"open {found.path}", error.strerror or str(error), "may we read it?") from error
    path = f"/proc/self/fd/{descriptor}"
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != found.identity:
            raise Gone
        yield path
    except EbpfError as error:
        raise EbpfError(error.asked.replace(path, found.path), error.why, error.advice) from error
    finally:
        os.close(descriptor)


class Probes:
    """Attached to libraries as they are found. `table`: base name -> shape, or a shape for one exact version."""

    def __init__(
        self,
        program: Loaded,
        table: Mapping[str, Shape],
        entry: Callable[[Shape], str],
        back: str,
        *,
        only: int | None = None,
    ) -> None:
        """`entry`, `back`: functions of the program for calls and returns; `only`: the one process that is watched."""
        self._program, self._table, self._entry, self._back, self._only = program, table, entry, back, only
        self._seen: set[tuple[int, int]] = set()
        self._early: dict[int, int | None] = {}
        """programs that had mapped a library before it was attached to, and when they began"""
        self._next = 1
        self.paths: list[str] = []
        self.problems: list[str] = []
        if only is not None:
            program.maps["only"].set(bytes(4), struct.pack("<I", only))

    def attach(self, found: Iterable[Found]) -> int:
        """Attaches to those that are new; how many. What cannot be attached to becomes a problem, said once."""
        fresh: set[tuple[int, int]] = set()
        for each in found:
            if each.identity in self._seen:
                continue
            self._seen.add(each.identity)
            try:
                with held(each) as path:
                    self._attach(path)
            except Gone:
                self._seen.discard(each.identity)  # the next look finds it where another program has it
                continue
            except EbpfError as error:
                self.problems.append(str(error))
                continue
            self.paths.append(each.path)
            fresh.add(each.identity)
        if fresh:
            # asked after attaching: who maps one of them later was seen from its first call on
            mine = libraries.by_program() if self._only is None else {self._only: libraries.mapped(self._only)}
            early = (pid for pid, several in mine.items() if any(each.identity in fresh for each in several))
            self._early |= {pid: procfs.start_time(pid) for pid in early}
        return len(fresh)

    def whole(self, pid: int) -> bool:
        """Whether all calls of a program were seen; not of one that used its libcuda before we knew that."""
        return pid not in self._early or procfs.start_time(pid) not in (self._early[pid], None)

    def look(self, extra: Iterable[str] = ()) -> int:
        """Attaches to every libcuda that is installed or in use by now and was not attached to; how many."""
        if self._only is not None:
            return self.attach(libraries.mapped(self._only) or libraries.installed(extra))
        return self.attach([*libraries.installed(extra), *libraries.of_programs()])

    def _attach(self, path: str) -> None:
        library = elf.read(path)
        places: dict[int, tuple[int, Shape]] = {}  # offset: one function under two names would be counted twice
        for name, shape in self._table.items():
            for full, legacy, per_thread in variants(name, library.functions):
                offset = library.functions[full]
                if offset not in places:
                    index = self._describe(library, offset, shape, legacy and shape.old, per_thread)
                    places[offset] = index, shape
        if not places:
            asked = f"attach to {path}"
            raise EbpfError(asked, "it exports no function of CUDA's driver", "name another with --libcuda")
        pid = self._only if self._only is not None else -1
        timed = [(offset, index) for offset, (index, shape) in places.items() if shape.timed]
        if timed:
            self._program.uprobes(path, timed, self._back, on_return=True, pid=pid)
        for entry in dict.fromkeys(self._entry(shape) for _, shape in places.values()):
            calls = [(offset, index) for offset, (index, shape) in places.items() if self._entry(shape) == entry]
            self._program.uprobes(path, calls, entry, pid=pid)

    def _describe(self, library: elf.Library, offset: int, shape: Shape, legacy: bool, per_thread: bool) -> int:
        """Tells the program of a function; its cookie."""
        if self._next >= MOST:
            raise EbpfError("attach to one more libcuda", f"more than {MOST} probes", "end programs of other versions")
        index, self._next = self._next, self._next + 1
        code = next((part for part in library.code if part[0] <= offset < part[0] + part[1]), (0, 0))
        flags = (LEGACY if legacy else 0) | (PER_THREAD if per_thread else 0)
        packed = _PACKED.pack(
            *(shape.kind, flags, shape.stream, shape.target, shape.bytes, shape.second, shape.third, shape.scale, 0),
            *(offset, *code),
        )
        self._program.maps["probes"].set(struct.pack("<I", index), packed)
        return index

    def notes(self) -> list[str]:
        """Why the view is partial: libraries that could not be attached to, programs without libcuda, or no library."""
        said = [*self.problems]
        if self._only is not None and not Path(f"/proc/{self._only}").exists():
            return [*said, f"PID {self._only} has ended"]
        blind = [pid for pid in libraries.without_libcuda() if self._only in (None, pid)]
        if blind:
            names = ", ".join(map(str, blind[:8])) + (", ..." if len(blind) > 8 else "")
            said.append(f"PID {names}: holds a GPU and maps no libcuda (a static program?): its calls are not seen")
        if not self.paths:
            said.append("no libcuda.so.1 was found yet: name it with --libcuda, or start a program that loads it")
        return said
