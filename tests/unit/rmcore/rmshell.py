# SPDX-License-Identifier: Apache-2.0
"""The RM core as a child process (tests/rmcore/shell.c), built with sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.patience import ended

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = (*sorted((ROOT / "kmod" / "rm").glob("*.c")), *sorted((ROOT / "tests" / "rmcore").glob("shell*.c")))
FLAGS: Final = ("-std=gnu11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
SANITIZE: Final = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
GPUS: Final = 32
NO_GPU: Final = "-"
ENOENT: Final = 2
EINVAL: Final = 22
ENOMEM: Final = 12
NO_LIMIT: Final = (1 << 63) - 1

KINDS: Final = [
    "other",
    "client",
    "device",
    "subdevice",
    "vaspace",
    "tsg",
    "ctxshare",
    "channel",
    "gr",
    "compute",
    "copy",
    "usermode",
    "mps",
    "event",
    "ctxdma",
    "p2p",
    "debugger",
    "binapi",
    "video",
    "extended",
    "fabric",
    "multicast",
    "list",
    "window",
    "registers",
    "system",
    "os",
    "virtual",
    "export",
    "import",
    "memory",
]
OPS: Final = [
    "other",
    "xfer",
    "alloc",
    "alloc_memory",
    "alloc_object",
    "ctxdma",
    "vid_heap",
    "free",
    "dup",
    "share",
    "control",
    "map",
    "unmap",
    "map_update",
    "map_dma",
    "unmap_dma",
    "bind_ctxdma",
    "idle",
    "register_fd",
    "os_event",
    "dmabuf",
    "version",
]


class CoreDied(AssertionError):
    """The core ended by itself: a sanitizer found something, or the test sent nonsense."""


class Refused(Exception):
    """The core answered an error; `number` is the positive errno, `refuser` the account without room (-1: none)."""

    def __init__(self, number: int, refuser: int = -1) -> None:
        super().__init__(f"errno {number}, refuser {refuser}")
        self.number, self.refuser = number, refuser


def build(folder: Path, name: str, sources: Iterable[Path], flags: Iterable[str]) -> Path:
    """Compiles into the folder; the compiler's words are the failure."""
    target = folder / name
    command = ["gcc", *FLAGS, *flags, "-o", str(target), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


class Core:
    """One process. Each command is a line, each answer a dictionary of numbers and texts."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __call__(self, command: str, *words: object) -> dict[str, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = " ".join((command, *(_word(word) for word in words)))
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise CoreDied(f"after: {line[:200]}\n{self._words()}")
        verdict, *pairs = answer.split()
        if verdict == "error":
            refuser = int(pairs[1].removeprefix("refuser=")) if len(pairs) > 1 else -1
            raise Refused(int(pairs[0]), refuser)
        return dict(pair.split("=", 1) for pair in pairs)

    def numbers(self, command: str, *words: object) -> dict[str, int]:
        """As the call, all values as numbers; those that are none are left out."""
        return {key: int(text) for key, text in self(command, *words).items() if text.lstrip("-").isdigit()}

    def error(self, command: str, *words: object) -> int:
        """The errno of a command, 0 if it succeeds."""
        try:
            self(command, *words)
        except Refused as refused:
            return refused.number
        return 0

    def _words(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()

    def close(self) -> None:
        """Ends it; AssertionError if it leaked, left charges behind or died before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        try:
            code = ended(self._process)
        finally:
            self._process.kill()
            words = self._words()
            self._process.stdout.close()
            self._process.stderr.close()
        assert code == 0, words


def _word(word: object) -> str:
    if isinstance(word, bytes | bytearray):
        return bytes(word).hex() or "-"
    return str(word)


def items(text: str) -> list[int]:
    """A comma-separated list of numbers."""
    return [int(part) for part in text.split(",")] if text else []


def counts(text: str) -> dict[str, int]:
    """Living objects by kind; kinds without any are left out."""
    return {kind: number for kind, number in zip(KINDS, items(text), strict=True) if number}
