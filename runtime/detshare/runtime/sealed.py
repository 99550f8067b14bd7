# SPDX-License-Identifier: Apache-2.0
"""Pages that programs write and nobody can shorten.

Whoever may write a file may also truncate it, and then everybody else who maps it gets SIGBUS at the next touch: the
daemon, and programs of other users. A sealed page in memory cannot be truncated. It lies in no folder; a daemon that is
started later finds it again in the programs that map it, for which the kernel wants root (CAP_CHECKPOINT_RESTORE).
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from typing import Final

from detshare.runtime.board_layout import PAGE_BYTES

_PREFIX: Final = "detshare:"
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def memory(name: str, size: int, flags: int = 0) -> int:
    """A descriptor of so much zeroed memory, which the kernel has for us and nobody can shorten. OSError."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    try:
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def create(name: str) -> int:
    """A descriptor of a new zeroed page. OSError."""
    descriptor = memory(f"{_PREFIX}{time.monotonic_ns():016x}:{name}", PAGE_BYTES)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _genuine(descriptor: int) -> bool:
    """Whether a process of this user made it, and nobody can shorten it."""
    info = os.fstat(descriptor)
    if (info.st_uid, info.st_size) != (os.geteuid(), PAGE_BYTES):
        return False
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # no memory, but a file
        return False


def find(pid: int) -> dict[str, int]:
    """Descriptors of the pages that a process maps, by the names that they were made with; of each name the newest,
    for pages of a context that ended may stay mapped. OSError where it may not be looked at, or has ended."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
        mapped = [line.rstrip("\n").split(None, 5) for line in lines]
    device, begin = _device(), f"/memfd:{_PREFIX}"
    # opening a file that lies elsewhere could wait for whoever serves it
    ours = [(each[5], each[0]) for each in mapped if each[3] == device and len(each) == 6 and each[5].startswith(begin)]
    found: dict[str, int] = {}
    for path, place in sorted(ours, reverse=True):
        name = path.removeprefix(begin).partition(":")[2].removesuffix(" (deleted)")
        try:
            descriptor = os.open(f"/proc/{pid}/map_files/{_canonical(place)}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # unmapped meanwhile
        if name in found or "/" in name or not _genuine(descriptor):
            os.close(descriptor)
        else:
            found[name] = descriptor
    return found


def _device() -> str:
    """The file system of such pages, as maps shows it."""
    descriptor = os.memfd_create(_PREFIX, os.MFD_CLOEXEC)
    try:
        device = os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
    return f"{os.major(device):02x}:{os.minor(device):02x}"


def _canonical(place: str) -> str:
    """Addresses as map_files has them: without the zeros in front that maps shows."""
    return "-".join(f"{int(end, 16):x}" for end in place.split("-"))


def possible() -> bool:
    """Whether such pages can be had, and would be found again."""
    name = "probe"
    with contextlib.suppress(OSError):
        descriptor = create(name)
        try:
            with mmap.mmap(descriptor, PAGE_BYTES):
                found = find(os.getpid())
        finally:
            os.close(descriptor)
        for each in found.values():
            os.close(each)
        return name in found
    return False
