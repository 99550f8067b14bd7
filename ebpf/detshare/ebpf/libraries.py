# SPDX-License-Identifier: Apache-2.0
"""Which libcuda the programs of this machine use, in whatever mount namespace; and which programs use none."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from detshare.ctl.core.sweep import Sweep

_NAME = re.compile(r"libcuda\.so(\.\d+)*")
_PLACES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/cuda*/compat",
    "/usr/local/nvidia/lib64",
)


@dataclass(frozen=True, slots=True)
class Found:
    """A libcuda: a path by which we can open it, and who it is, whatever its path."""

    path: str
    identity: tuple[int, int]
    """device and inode as stat(2) gives them"""


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def installed(extra: Iterable[str] = ()) -> list[Found]:
    """Those named in `extra`, in $LD_LIBRARY_PATH and in the usual places; each file once."""
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *(f for p in _PLACES for f in sorted(glob.glob(p)))]
    paths = [*extra, *(str(Path(folder, "libcuda.so.1")) for folder in folders if folder)]
    found: dict[tuple[int, int], Found] = {}
    for path in paths:
        identity = _identity(path)
        if identity is not None:
            found.setdefault(identity, Found(os.path.realpath(path), identity))
    return list(found.values())


def mapped(pid: int) -> list[Found]:
    """The libcuda that a process has mapped; more than one is possible. Empty where it has none or has ended."""
    found: dict[tuple[int, int], Found] = {}
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        fields = line.split(None, 5)
        if len(fields) < 6 or "x" not in fields[1]:
            continue
        path = fields[5].removesuffix(" (deleted)")
        if not _NAME.fullmatch(os.path.basename(path)):
            continue
        # map_files also reaches what was deleted or replaced since; the path is good where that needs more rights
        for way in (f"/proc/{pid}/map_files/{fields[0]}", f"/proc/{pid}/root{path}"):
            identity = _identity(way)
            if identity is not None:
                found.setdefault(identity, Found(way, identity))
                break
    return list(found.values())


def without_libcuda() -> list[int]:
    """Programs that hold a GPU's descriptor and have no libcuda mapped: static ones, other libraries' clients."""
    return [
        opener.id.pid for opener in Sweep().openers() if opener.device_fds and not mapped(opener.id.pid)
    ]


def of_programs() -> list[Found]:
    """The libcuda of every program that runs now."""
    found: dict[tuple[int, int], Found] = {}
    for several in by_program().values():
        for each in several:
            found.setdefault(each.identity, each)
    return list(found.values())


def by_program() -> dict[int, list[Found]]:
    """PID -> what it has mapped, of every program that has any."""
    every = ((pid, mapped(pid)) for pid in map(int, filter(str.isdigit, os.listdir("/proc"))))
    return {pid: several for pid, several in every if several}
