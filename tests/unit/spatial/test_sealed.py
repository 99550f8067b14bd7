# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from detshare.runtime import sealed
from detshare.runtime.board_layout import PAGE_BYTES

pytestmark = pytest.mark.skipif(not sealed.possible(), reason="finding a page of another process needs root")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def mapped(stack: ExitStack, descriptor: int) -> mmap.mmap:
    page = stack.enter_context(mmap.mmap(descriptor, PAGE_BYTES))
    os.close(descriptor)
    return page


def found(stack: ExitStack) -> dict[str, int]:
    descriptors = sealed.find(os.getpid())
    for each in descriptors.values():
        stack.callback(os.close, each)
    return descriptors


def test_a_page_is_found_by_its_name_where_it_is_mapped(stack: ExitStack) -> None:
    page = mapped(stack, sealed.create("7.counters"))
    page[0] = 42
    (descriptor,) = (again := found(stack)).values()
    assert list(again) == ["7.counters"]
    assert os.pread(descriptor, 1, 0) == b"\x2a"
    os.pwrite(descriptor, b"\x2b", 0)
    assert page[0] == 43


@pytest.mark.parametrize("size", [0, PAGE_BYTES - 1, PAGE_BYTES + 1])
def test_it_keeps_its_size(stack: ExitStack, size: int) -> None:
    mapped(stack, sealed.create("x"))
    with pytest.raises(PermissionError):
        os.ftruncate(found(stack)["x"], size)


def test_of_two_with_one_name_the_newer_is_meant(stack: ExitStack) -> None:
    for mark in (1, 2):
        mapped(stack, sealed.create("x"))[0] = mark
    assert os.pread(found(stack)["x"], 1, 0) == b"\x02"


def test_what_only_has_the_name_is_not_taken(stack: ExitStack) -> None:
    genuine = sealed.create("x")
    name = os.readlink(f"/proc/self/fd/{genuine}").removeprefix("/memfd:").removesuffix(" (deleted)")
    os.close(genuine)
    forged = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.ftruncate(forged, PAGE_BYTES)
    mapped(stack, forged)
    mapped(stack, sealed.create("../y"))
    assert found(stack) == {}
