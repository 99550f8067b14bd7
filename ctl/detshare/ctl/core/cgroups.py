# SPDX-License-Identifier: Apache-2.0
"""Version 2 cgroups by path and by the number that the kernel has for them (the inode of their folder)."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path, PurePosixPath


@lru_cache(maxsize=1)
def mount(mounts: Path = Path("/proc/self/mountinfo")) -> Path | None:
    """Where the version 2 hierarchy is mounted; None where it is not."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")  # proc(5): optional fields end with a single hyphen
        if after.split(" ", 1)[0] == "cgroup2":
            return Path(before.split(" ")[4].replace("\\040", " "))
    return None


def folder(path: str) -> Path | None:
    """The folder of a cgroup, given by its path in the hierarchy or by that in the file system; None: there is none."""
    root = mount()
    if root is None:
        return None
    found = Path(path) if Path(path).is_relative_to(root) else root / path.lstrip("/")
    if ".." in found.parts:
        return None
    return found if found.is_dir() else None


def name(path: Path) -> str:
    """A folder's path in the hierarchy: "/" or "/system.slice/foo.service"."""
    root = mount()
    inside = path.relative_to(root) if root is not None and path.is_relative_to(root) else path
    return "/" if str(inside) == "." else f"/{inside}"


def of(pid: int) -> str | None:
    """The path in the hierarchy of the cgroup that a process is in; None where it is in none. OSError if it ended."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)


def bearing(path: str, name: str) -> list[str]:
    """A cgroup and those above it that bear a container's name as engines write it, outermost first.

    "/libpod-NAME.scope" of "/libpod-NAME.scope/container"; a longer name that has this one in it is another one.
    """
    bears = re.compile(rf"(.*[-_.:])?{re.escape(name)}(\.(scope|service|slice))?")
    parts = PurePosixPath(path).parts
    found = [index for index, part in enumerate(parts) if name and bears.fullmatch(part)]
    return [str(PurePosixPath(*parts[: index + 1])) for index in found]


def number(path: Path) -> int | None:
    """The kernel's number of a cgroup; None where it is gone."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def number_of(path: str) -> int | None:
    """The kernel's number of a cgroup given by its path; None: there is none."""
    found = folder(path)
    return number(found) if found is not None else None


def lineage(path: str) -> dict[int, str]:
    """A cgroup and all above it: number -> path in the hierarchy. Empty where it is gone."""
    found: dict[int, str] = {}
    here, root = folder(path), mount()
    while here is not None and root is not None and here.is_relative_to(root):
        inode = number(here)
        if inode is not None:
            found[inode] = name(here)
        here = here.parent
    return found


def find(wanted: set[int], most: int = 20_000) -> dict[int, str]:
    """Number -> path of cgroups with these numbers, looking at `most` folders at most."""
    root = mount()
    found: dict[int, str] = {}
    if root is None or not wanted:
        return found
    for seen, (where, _, _) in enumerate(os.walk(root)):
        if seen >= most or found.keys() >= wanted:
            break
        inode = number(Path(where))
        if inode in wanted:
            found[inode] = name(Path(where))
    return found
