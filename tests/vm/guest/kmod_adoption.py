# SPDX-License-Identifier: Apache-2.0
"""Asking the driver whose a client is leaves the caller's memory alone. The module is loaded already."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator

import pytest

from detshare.ctl.netlink import genl
from tests.kernel_log import KernelLog
from tests.patience import until
from tests.vm.guest.kmod_tools import RM_FREE, family, free_client, load, make_client, unload, vctxs

__all__ = ["family"]  # a fixture

RM_DUP = 0x34
PAGE = mmap.PAGESIZE
NOBODY = 0xDEAD0001  # neither this nor the handles that follow are anybody's

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]


def call(file: int, number: int, size: int, at: int) -> int:
    """The ioctl with its block at this address; errno, 0: none."""
    command = (3 << 30) | (size << 16) | (ord("F") << 8) | number
    return ctypes.get_errno() if libc.ioctl(file, command, at) else 0


@pytest.fixture
def last_page() -> Iterator[int]:
    """A page that nothing is mapped behind."""
    at = libc.mmap(None, 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert libc.munmap(at + PAGE, PAGE) == 0
    yield at
    libc.munmap(at, PAGE)


@pytest.fixture
def old() -> Iterator[tuple[int, int]]:
    """A control file and a client of it that is older than the module."""
    unload()
    file = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
    client = make_client(file)
    load()
    yield file, client
    os.close(file)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (RM_FREE, "{0} {0} 0xbeef 0"),  # what is not there can be freed
        (RM_DUP, "{0} {0} 0xbeef {0} 0xbeee 0 0"),  # what is not there cannot be duplicated
    ],
    ids=["free", "dup"],
)
def test_a_block_at_the_end_of_memory_is_enough(old: tuple[int, int], last_page: int, number: int, words: str) -> None:
    file, client = old
    block = b"".join(struct.pack("<I", int(word, 0)) for word in words.format(client).split())
    at = last_page + PAGE - len(block)
    ctypes.memmove(at, block, len(block))
    assert call(file, number, len(block), at) == 0
    with genl.DetShare() as family:
        assert [(found["client"], found["partial"]) for found in vctxs(family, os.getpid())] == [(client, 1)]
    free_client(file, client)


def rewrite_for_ever(shared: mmap.mmap) -> None:
    """Counts up in the word behind the block, and how often that is not what was written last."""
    word = ctypes.c_uint64.from_buffer(shared, 16)
    lost, rounds = ctypes.c_uint64.from_buffer(shared, 512), ctypes.c_uint64.from_buffer(shared, 520)
    count = 0
    while True:
        lost.value += word.value != count
        count += 1
        word.value = rounds.value = count


def test_what_lies_behind_the_block_is_not_written(old: tuple[int, int]) -> None:
    file, client = old
    log = KernelLog()
    shared = mmap.mmap(-1, PAGE)
    block = ctypes.c_char.from_buffer(shared)
    neighbour = os.fork()
    if not neighbour:
        rewrite_for_ever(shared)
    rounds = struct.Struct("<Q")
    until(lambda: rounds.unpack_from(shared, 520) > (0,))
    try:
        for stranger in range(NOBODY, NOBODY + 3000):
            struct.pack_into("<IIII", shared, 0, stranger, stranger, stranger, 0)
            # the module has to ask each time: it knows no such client
            assert call(file, RM_FREE, 16, ctypes.addressof(block)) == 0
    finally:
        os.kill(neighbour, 9)
        os.waitpid(neighbour, 0)
    assert rounds.unpack_from(shared, 520) > (1000,)
    assert struct.unpack_from("<Q", shared, 512) == (0,)
    assert log.lines() == []  # the driver would log a control that names no client
    with genl.DetShare() as family:
        assert vctxs(family, os.getpid()) == []  # nobody's client has become anybody's
    free_client(file, client)
