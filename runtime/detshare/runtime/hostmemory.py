# SPDX-License-Identifier: Apache-2.0
"""Host memory that GPUs copy from and to: on huge pages where that is asked for, on the GPU's own NUMA node.

A huge page is zeroed and pinned as one; of small ones a program's first park makes 512 times as many.

Sources: memfd_create(2), MFD_HUGETLB; set_mempolicy(2), MPOL_PREFERRED; Linux, admin-guide/mm/hugetlbpage.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from detshare.ctl.core import procfs
from detshare.runtime import sealed

__all__ = ["HUGE", "free_huge_bytes", "make", "node_of"]

HUGE: Final = 2 << 20
_MFD_HUGE: Final = os.MFD_HUGETLB | os.MFD_HUGE_2MB
_POOL: Final = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
_SET_MEMPOLICY: Final = {"x86_64": 238, "aarch64": 237}.get(platform.machine())
_DEFAULT, _PREFERRED = 0, 1
_NODES: Final = 1024
"""as many NUMA nodes as a mask of ours has bits"""
_libc = ctypes.CDLL(None, use_errno=True)


@lru_cache(maxsize=256)
def node_of(gpu: str, devices: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """The NUMA node of a GPU (UUID); None where it has none, or nobody knows."""
    pci = next((each.pci for each in procfs.gpus() if each.uuid == gpu), None)
    if pci is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        node = int((devices / pci.lower() / "numa_node").read_text(encoding="ascii"))
        return node if 0 <= node < _NODES else None
    return None


def free_huge_bytes(pool: Path = _POOL) -> int:
    """What the kernel's pool of huge pages has, but for what is promised to others."""
    with contextlib.suppress(OSError, ValueError):
        free, promised = (int((pool / f"{each}_hugepages").read_text(encoding="ascii")) for each in ("free", "resv"))
        return HUGE * max(free - promised, 0)
    return 0


@contextlib.contextmanager
def _near(node: int | None) -> Iterator[None]:
    """What this thread makes lies on that node while there is room. Nothing where the kernel does not take it."""
    if node is None or _SET_MEMPOLICY is None:
        yield
        return
    mask = (ctypes.c_ulong * (_NODES // 64))()
    mask[node // 64] = 1 << node % 64
    _libc.syscall(_SET_MEMPOLICY, _PREFERRED, mask, _NODES + 1)
    try:
        yield
    finally:
        _libc.syscall(_SET_MEMPOLICY, _DEFAULT, None, 0)


def make(name: str, size: int, *, huge: bool, ordinary: bool, node: int | None) -> tuple[int, bool]:
    """A sealed descriptor of so much zeroed memory, which the kernel has for us; whether on huge pages. OSError.

    `huge`: on those if the pool has enough. `ordinary`: else on ordinary ones, some 3 GB a second.
    """
    with _near(node):
        if huge and size % HUGE == 0:
            try:
                return sealed.memory(name, size, _MFD_HUGE), True
            except OSError:
                if not ordinary:
                    raise
        return sealed.memory(name, size), False
