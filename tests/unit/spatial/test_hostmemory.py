# SPDX-License-Identifier: Apache-2.0
"""Host memory near a GPU and on huge pages, and what is done where there are none."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.core import config, procfs
from detshare.ctl.core.driver import Gpu
from detshare.runtime import arena as arenas
from detshare.runtime import hostmemory, sealed
from detshare.runtime.arena import Arena, host_bytes
from detshare.runtime.tenant import Refused

MIB = 1 << 20
GPU = Gpu("GPU-1", 0, "H100", "0000:0A:00.0", 0)


def memfds() -> int:
    """How many this process has; its other threads open and close descriptors of other kinds meanwhile."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:")
    return found


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as /sys/bus/pci/devices, for one GPU."""
    monkeypatch.setattr(procfs, "gpus", lambda: [GPU])
    (tmp_path / "0000:0a:00.0").mkdir()
    return tmp_path


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None), ("5000\n", None)])
def test_the_node_of_a_gpu_is_what_the_kernel_says(devices: Path, text: str, node: int | None) -> None:
    (devices / "0000:0a:00.0" / "numa_node").write_text(text)
    assert hostmemory.node_of("GPU-1", devices) == node


def test_a_gpu_that_nobody_knows_has_no_node(devices: Path) -> None:
    assert hostmemory.node_of("GPU-1", devices) is None  # no such file
    assert hostmemory.node_of("GPU-2", devices) is None


def policy() -> tuple[int, int]:
    """This thread's memory policy, and the first nodes of its mask (get_mempolicy(2))."""
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * 16)()
    number = {238: 239, 237: 236}[hostmemory._SET_MEMPOLICY or 238]
    assert not ctypes.CDLL(None).syscall(number, ctypes.byref(mode), mask, 1024 + 1, None, 0)
    return mode.value, mask[0]


def test_memory_is_asked_for_on_the_gpus_node_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    made = sealed.memory

    def watched(name: str, size: int, flags: int = 0) -> int:
        seen.append(policy())
        return made(name, size, flags)

    monkeypatch.setattr(sealed, "memory", watched)
    before = policy()
    descriptor, huge = hostmemory.make("a", 2 * MIB, huge=False, ordinary=True, node=0)
    os.close(descriptor)
    assert not huge
    assert seen == [(hostmemory._PREFERRED, 1)]
    assert policy() == before == (0, 0)


class Pool:
    """The kernel's pool of huge pages, in place of memfd_create and fallocate; `free` bytes are left of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.free, self.huge = free, set[int]()
        self._create, self._fill = os.memfd_create, os.posix_fallocate
        monkeypatch.setattr(os, "memfd_create", self._made)
        monkeypatch.setattr(os, "posix_fallocate", self._filled)

    def _made(self, name: str, flags: int) -> int:
        descriptor = self._create(name, flags & ~(os.MFD_HUGETLB | os.MFD_HUGE_2MB))
        (self.huge.add if flags & os.MFD_HUGETLB else self.huge.discard)(descriptor)
        return descriptor

    def _filled(self, descriptor: int, offset: int, size: int) -> None:
        if descriptor in self.huge:
            if size > self.free:
                raise OSError(errno.ENOSPC, "no huge pages")
            self.free -= size
        self._fill(descriptor, offset, size)


def test_where_huge_pages_end_ordinary_ones_are_given_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, arena = Pool(monkeypatch, 6 * MIB), Arena(100 * MIB, huge=True)
    before = memfds()
    given = [arena.make("1", 4 * MIB) for _ in range(3)]
    assert [each in pool.huge for each in given] == [True, False, False]
    assert (pool.free, arena.ordinary) == (2 * MIB, 8 * MIB)
    assert memfds() == before + 3
    for each in given:
        assert fcntl.fcntl(each, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SEAL
        os.close(each)


def test_where_ordinary_pages_are_too_few_the_host_is_not_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else took the pool's pages after they were counted."""
    pool, arena = Pool(monkeypatch, 2 * MIB), Arena(100 * MIB, huge=True)
    monkeypatch.setattr(arenas, "_available", lambda: host_bytes() // 20 + 3 * MIB)
    before = memfds()
    with pytest.raises(Refused, match="no huge pages"):
        arena.make("1", 4 * MIB)
    assert (pool.free, arena.ordinary, memfds()) == (2 * MIB, 0, before)


def test_two_kinds_of_pages_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "_available", lambda: host_bytes() // 20 + 6 * MIB)
    monkeypatch.setattr(hostmemory, "free_huge_bytes", lambda: 8 * MIB)
    arena = Arena(100 * MIB, huge=True)
    who: Any = type("Tenant", (), {"park": type("Park", (), {"arena": 0})()})()
    with pytest.raises(Refused, match="has 8M to spare, and 12M are needed"):
        arena.room([who], who, 12 * MIB)


def test_nobody_takes_huge_pages_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, arena = Pool(monkeypatch, 6 * MIB), Arena(100 * MIB)
    os.close(arena.make("1", 4 * MIB))
    assert pool.free == 6 * MIB


def test_the_pool_counts_as_memory_that_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "_available", lambda: host_bytes() // 20)
    monkeypatch.setattr(hostmemory, "free_huge_bytes", lambda: 8 * MIB)
    who: Any = type("Tenant", (), {"park": type("Park", (), {"arena": 0})()})()
    Arena(100 * MIB, huge=True).room([who], who, 8 * MIB)
    assert who.park.arena == 8 * MIB
    who.park.arena = 0
    with pytest.raises(Refused, match="the host has"):
        Arena(100 * MIB).room([who], who, 8 * MIB)


def test_the_pool_is_read(tmp_path: Path) -> None:
    (tmp_path / "free_hugepages").write_text("5\n")
    (tmp_path / "resv_hugepages").write_text("2\n")
    assert hostmemory.free_huge_bytes(tmp_path) == 6 * MIB
    (tmp_path / "resv_hugepages").write_text("9\n")
    assert hostmemory.free_huge_bytes(tmp_path) == 0
    assert hostmemory.free_huge_bytes(tmp_path / "none") == 0


def test_they_are_a_setting() -> None:
    assert config.parse(b"[park]\nhuge_pages = true").park.huge_pages
    assert not config.parse(b"").park.huge_pages
    with pytest.raises(config.ConfigError, match=r"park\.huge_pages"):
        config.parse(b'[park]\nhuge_pages = "some"')


def test_real_huge_pages_are_zero_and_sealed() -> None:
    descriptor, huge = hostmemory.make("a", 4 * MIB, huge=True, ordinary=True, node=None)
    try:
        if not huge:
            pytest.skip("this machine's pool has no huge pages (vm.nr_hugepages, vm.nr_overcommit_hugepages)")
        assert os.fstat(descriptor).st_blksize == hostmemory.HUGE
        with mmap.mmap(descriptor, 4 * MIB) as mapped:
            assert mapped[:] == bytes(4 * MIB)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 2 * MIB)
    finally:
        os.close(descriptor)
