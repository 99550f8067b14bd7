# SPDX-License-Identifier: Apache-2.0
"""Host memory that parked programs' GPU memory lies in.

Each program and GPU has memory of its own, which no other program ever gets: the kernel gives zeroed pages, and takes
them back when the last who has them ends. It is sealed, so that nobody can shorten it under somebody who copies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from detshare.ctl.core import sizes
from detshare.runtime import board_layout as layout
from detshare.runtime import hostmemory
from detshare.runtime.board import BadBoard
from detshare.runtime.tenant import Refused, Tenant

_SPARE: Final = 0.05
"""of the host's memory, which stays free"""


_MESSAGE: Final = struct.Struct("<II16sQ")


def asked(data: bytes) -> tuple[bytes, int] | None:
    """The GPU's UUID and the bytes that a library asks for; None where this is no such message. BadBoard."""
    magic = int.from_bytes(data[:4], "little")
    if len(data) != _MESSAGE.size or magic not in (layout.MAGIC_ARENA, layout.MAGIC_HOST, layout.MAGIC_SOME):
        return None
    _magic, version, uuid, size = _MESSAGE.unpack(data)
    if version != layout.VERSION:
        text = f"the library speaks version {version}, the daemon {layout.VERSION}"
        raise BadBoard(f"{text}: install both from one build, and start the program again")
    if not 0 < size < 1 << 50:
        raise BadBoard(f"{size} bytes of host memory cannot be")
    return uuid, size


def counts_only(data: bytes) -> bool:
    """Whether the library gets that memory by itself, from the driver, which wipes it: no descriptor is sent."""
    return int.from_bytes(data[:4], "little") == layout.MAGIC_HOST


def some(data: bytes) -> bool:
    """Whether less than that will do."""
    return int.from_bytes(data[:4], "little") == layout.MAGIC_SOME


def host_bytes() -> int:
    """The host's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _available() -> int:
    """What the kernel can give without swapping; the whole where it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return host_bytes()


def _ordinary() -> int:
    """Bytes of ordinary pages that the host can spare."""
    return _available() - int(host_bytes() * _SPARE)


class Arena:
    """The memory of all programs together. The caller holds a lock around `room`."""

    def __init__(self, limit: int | None = None, huge: bool = False) -> None:
        self.limit = host_bytes() // 2 if limit is None else limit
        """bytes that all of them together may have"""
        self.huge = huge
        """on huge pages, as long as there are any"""
        self.ordinary = 0
        """bytes that were given on ordinary pages so far"""

    def _free(self) -> int:
        """What the host can give at once: a piece is of one kind of page."""
        return max(_ordinary(), hostmemory.free_huge_bytes() if self.huge else 0)

    def lacks(self, tenants: Iterable[Tenant], who: Tenant, size: int) -> int:
        """Bytes that others would have to give back before `who` can have `size`; 0 or less: none."""
        others = sum(tenant.park.arena for tenant in tenants if tenant is not who)
        free = self._free()
        return max(others + size - self.limit, size - who.park.arena - free)

    def left(self, tenants: Iterable[Tenant], who: Tenant) -> int:
        """Bytes that `who` can have besides what it has."""
        free = self._free()
        return max(min(self.limit - sum(tenant.park.arena for tenant in tenants), free), 0)

    def room(self, tenants: Iterable[Tenant], who: Tenant, size: int) -> None:
        """Count `size` bytes for `who`, in place of what it had. Refused where that is too much: then it keeps that."""
        others = sum(tenant.park.arena for tenant in tenants if tenant is not who)
        if others + size > self.limit:
            left = sizes.text(max(self.limit - others, 0))
            text = f"the arena of {sizes.text(self.limit)} has {left} left, and {sizes.text(size)} are needed"
            following = "raise park.arena in the configuration, or resume or end another parked program"
            raise Refused(errno.ENOSPC, f"{text}; next: {following}")
        free = self._free()
        if size - who.park.arena > free:
            text = f"the host has {sizes.text(max(free, 0))} to spare, and {sizes.text(size)} are needed"
            raise Refused(errno.ENOMEM, f"{text}; next: free host memory")
        who.park.arena = size

    def make(self, name: str, size: int, gpu: str = "") -> int:
        """A descriptor of so much memory near a GPU (UUID), which the kernel has for us. Refused."""
        try:
            fits, node = size <= _ordinary(), hostmemory.node_of(gpu)
            descriptor, huge = hostmemory.make(
                f"detshare-arena-{name}", size, huge=self.huge, ordinary=fits, node=node
            )
        except OSError as error:
            text = f"the kernel does not give {sizes.text(size)} of host memory ({error.strerror})"
            raise Refused(error.errno or errno.ENOMEM, f"{text}; next: free host memory") from error
        self.ordinary += 0 if huge else size
        return descriptor
