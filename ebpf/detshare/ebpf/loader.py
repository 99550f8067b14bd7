# SPDX-License-Identifier: Apache-2.0
"""Loading a program: by bcc where it and the kernel's headers are there, else as a prebuilt object through libbpf.

$DETSHARE_EBPF (`bcc`, `libbpf`, `auto`) chooses. Maps, attaching and reading are the same either way.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from detshare.ebpf import attach, bcc, build, libbpf
from detshare.ebpf.bpf import Map, MapKind, MapSpec, has_uprobe_multi, link_uprobes
from detshare.ebpf.errors import EbpfError

TROUBLE = MapSpec("trouble", MapKind.PERCPU_ARRAY, 4, 8, 3)
_BTF = Path("/sys/kernel/btf/vmlinux")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a program could not keep since it was loaded. Anything but zeros: the view is partial.

    lost: events that found the ring full. full: entries that found a table full. unread: calls whose memory in the
    program could not be read.
    """

    lost: int = 0
    full: int = 0
    unread: int = 0

    def __bool__(self) -> bool:
        return bool(self.lost or self.full or self.unread)

    def words(self) -> list[str]:
        """A remark for each kind that occurred."""
        said = (
            (self.lost, "event(s) lost: the ring was full"),
            (self.full, "entry(s) not kept: a table was full"),
            (self.unread, "call(s) whose parameters could not be read"),
        )
        return [f"{count} {text}" for count, text in said if count]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which loader is used, and why; `name` is empty where none can be."""

    name: str
    why: str
    advice: str = ""


def _bcc_missing() -> str:
    if bcc.module() is None:
        return "python3-bpfcc is not installed"
    return "" if bcc.headers() else f"no headers of kernel {os.uname().release}"


def _libbpf_missing() -> str:
    if libbpf.library() is None:
        return "libbpf.so.1 is not installed"
    if not _BTF.exists():
        return "this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    absent = [source.name for source in build.sources() if not build.built(source).exists()]
    if absent and (reason := build.why_not()):
        return f"no prebuilt objects, and none can be built: {reason}"
    return ""


def choices() -> list[Choice]:
    """The loaders that can be used here, best first; one with an empty name where there is none."""
    wanted = os.environ.get("DETSHARE_EBPF", "auto")
    if wanted not in ("auto", "bcc", "libbpf"):
        raise EbpfError(f"use the loader {wanted!r}", "there is none of that name", "set DETSHARE_EBPF=libbpf or bcc")
    missing = {"bcc": _bcc_missing, "libbpf": _libbpf_missing}
    good = {"bcc": "bcc with the kernel's headers", "libbpf": f"prebuilt CO-RE objects, libbpf {libbpf.version()}"}
    found, reasons = [], []
    for name in ("bcc", "libbpf") if wanted == "auto" else (wanted,):
        reason = missing[name]()
        if reason:
            reasons.append(f"{name}: {reason}")
        else:
            found.append(Choice(name, "; ".join([good[name], *reasons])))
    return found or [
        Choice("", "; ".join(reasons), "as root: apt-get install libbpf1 (or python3-bpfcc and linux-headers)")
    ]


class Loaded:
    """A program's maps and descriptors, and what is attached. Closing detaches all."""

    def __init__(
        self, name: str, maps: Iterable[MapSpec], left_out: Collection[str] = (), many: Collection[str] = ()
    ) -> None:
        """`name`: of the source, without .bpf.c. `left_out`: functions that are not loaded. `many`: functions that
        go to uprobes(). EbpfError."""
        self.maps: dict[str, Map] = {}
        self._links: list[int] = []
        self._code: bcc.Compiled | libbpf.Object | None = None
        self.notes: list[str] = []
        self.how = ""
        try:
            for spec in (*maps, TROUBLE):
                self.maps[spec.name] = Map(spec)
            self._load(build.FOLDER / f"{name}.bpf.c", left_out, many)
        except (EbpfError, OSError):
            self.close()
            raise

    def _load(self, source: Path, left_out: Collection[str], many: Collection[str]) -> None:
        failure: EbpfError | None = None
        for choice in choices():
            try:
                if choice.name == "bcc":
                    self._code = bcc.Compiled(source, self.maps, left_out)
                elif choice.name == "libbpf":
                    self._code = libbpf.Object(
                        _object(source), self.maps, left_out, many if has_uprobe_multi() else ()
                    )
                else:
                    raise EbpfError(f"load {source.name}", choice.why, choice.advice)
            except EbpfError as error:
                failure = failure or error
                self.notes.append(str(error))
                continue
            self.how = choice.name
            return
        assert failure is not None
        raise failure

    def program(self, name: str) -> int:
        """Descriptor of a function."""
        assert self._code is not None
        return self._code.program(name)

    def tracepoint(self, where: str, function: str) -> None:
        """Runs a function at tracepoint GROUP/EVENT."""
        self._links.append(attach.tracepoint(where, self.program(function)))

    def raw_tracepoint(self, where: str | None, function: str) -> None:
        """Runs a function at a raw tracepoint; None: at what it was loaded for."""
        self._links.append(attach.raw_tracepoint(where, self.program(function)))

    def uprobes(
        self, path: str, probes: Sequence[tuple[int, int]], function: str, *, on_return: bool = False, pid: int = -1
    ) -> None:
        """Runs a function of `many` where a file's code is executed: (offset, cookie) of each place."""
        program = self.program(function)
        if self.how == "libbpf" and has_uprobe_multi():
            self._links.append(link_uprobes(path, program, probes, on_return=on_return, pid=max(pid, 0)))
            return
        for offset, cookie in probes:
            self._links += attach.uprobe(path, offset, program, cookie=cookie, on_return=on_return, pid=pid)

    def kprobe(self, function: str, program: str, *, cookie: int = 0, on_return: bool = False) -> None:
        """Runs a function of ours where one of the kernel, or of a module, is called or returns."""
        self._links += attach.kprobe(function, self.program(program), cookie=cookie, on_return=on_return)

    def trouble(self) -> Trouble:
        """Counts since the program was loaded, of all CPUs."""
        made = self.maps["trouble"]
        values = [
            sum(struct.unpack("<Q", value)[0] for value in made.per_cpu(struct.pack("<I", slot))) for slot in range(3)
        ]
        return Trouble(*values)

    def close(self) -> None:
        """Detaches everything and gives maps and programs back."""
        for link in reversed(self._links):
            os.close(link)
        self._links.clear()
        if self._code is not None:
            self._code.close()
            self._code = None
        for made in self.maps.values():
            made.close()
        self.maps.clear()


def _object(source: Path) -> Path:
    """The prebuilt object; made anew in a checkout whose source is newer, where that can be."""
    target = build.built(source)
    if build.stale(source, target) and not build.why_not() and os.access(build.FOLDER, os.W_OK):
        return build.build(source)
    return target
