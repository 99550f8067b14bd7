# SPDX-License-Identifier: Apache-2.0
"""A shut door is shut to whatever writes on a program's behalf: nothing is rung, nothing hangs, neighbours get on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.patience import until
from tests.vm.guest.gate_tools import Door, Gate, counted
from tests.vm.guest.kmod_tools import TRUTH

EFAULT = 14
LOOK_S = 0.1

COPIES = ("pread", "recv", "splicein", "aio", "uring", "uringworker")
"""the kernel copies a token: answered by an error"""
ITSELF = ("settid", "cleartid", "rseq")
"""the kernel writes what it likes"""
ENDS = ("altstack", "rseq")
"""who asks for that while the door is shut is ended by a signal"""
PINS = ("uringfixed", "direct", "vmsplice", "userfault", "mremap", "remap", "populate")
"""no kernel does these on a device's memory"""
STORES = ("sse", "avx", "process")
"""the program's own: they wait"""


@pytest.fixture
def door() -> Iterator[Door]:
    with Door() as it:
        it.do("kick", 0, 1)
        yield it


@pytest.fixture(scope="module", autouse=True)
def block_device() -> None:
    subprocess.run(["modprobe", "brd", "rd_nr=1", "rd_size=64"], check=True)


def rung(pid: int) -> tuple[int, int]:
    """What is counted in the page, and tokens that the simulated GPU took."""
    rows = [line.split() for line in (TRUTH / "kicks").read_text().splitlines()[1:]]
    return counted(pid), sum(int(row[5]) for row in rows if int(row[3]) == pid)


def pending(door: Door) -> int:
    return Gate(door.pid).stats()["pending"]


def launches(door: Door, way: str) -> int:
    """Whether the way, with the gate open, makes the GPU take what is queued: its result."""
    assert door.do("queue")["result"] == 0
    result = int(door.do(way, 0, 0)["result"])
    until(lambda: pending(door) == 0, said=lambda: f"{way} does not ring an open door: {result}")
    return result


@pytest.mark.parametrize("way", [*COPIES, "settid", "cleartid", *ENDS, *PINS, *STORES])
def test_each_way_works_on_plain_memory(door: Door, way: str) -> None:
    assert door.do(way, 0, 1)["result"] >= 0


@pytest.mark.parametrize("way", COPIES)
def test_no_copy_of_the_kernels_rings_a_shut_door(door: Door, way: str) -> None:
    assert launches(door, way) == 4
    with Door() as other, Gate(door.pid):
        assert door.do("queue")["result"] == 0
        before = rung(door.pid)
        assert door.do(way, 0, 0)["result"] == -EFAULT
        time.sleep(LOOK_S)
        assert (rung(door.pid), pending(door)) == (before, 1)
        assert other.do("kick", 0, 100)["result"] == 100
    assert launches(door, way) == 4


@pytest.mark.parametrize("way", ITSELF)
def test_no_write_of_the_kernels_own_reaches_a_shut_door(door: Door, way: str) -> None:
    with Door() as other, Gate(door.pid):
        before = rung(door.pid)
        door.do(way, 0, 0)
        time.sleep(LOOK_S)
        assert rung(door.pid) == before
        assert other.do("kick", 0, 100)["result"] == 100
    before = rung(door.pid)
    assert door.do(way, 0, 0)["result"] == 0
    assert rung(door.pid) != before, "it does not reach an open door either"


@pytest.mark.parametrize("way", ENDS)
def test_who_puts_the_kernels_words_into_a_shut_door_ends(door: Door, way: str) -> None:
    assert door.do(way, 0, 0)["result"] == 0
    with Gate(door.pid):
        before = rung(door.pid)
        assert door.do(way, 0, 0)["result"] == -EFAULT
        time.sleep(LOOK_S)
        assert rung(door.pid) == before


def test_a_robust_mutex_in_a_shut_door_is_left_as_it_is(door: Door) -> None:
    def dies() -> bool:
        door.do("halt")
        time.sleep(LOOK_S)
        return rung(door.pid) != before

    door.do("robust", 0)
    before = rung(door.pid)
    assert dies()
    door.do("robust", 0)
    before = rung(door.pid)
    with Gate(door.pid):
        assert not dies()


@pytest.mark.parametrize("way", PINS)
def test_no_door_is_pinned_or_mapped_anew(door: Door, way: str) -> None:
    before = rung(door.pid)
    assert door.do(way, 0, 0)["result"] < 0
    with Gate(door.pid):
        assert door.do(way, 0, 0)["result"] < 0
        time.sleep(LOOK_S)
        assert rung(door.pid) == before


@pytest.mark.parametrize("way", STORES)
def test_a_store_of_any_kind_waits(door: Door, way: str) -> None:
    launches(door, way)
    with Gate(door.pid):
        assert door.do("queue")["result"] == 0
        before = rung(door.pid)
        waiting = door.ask(way, 0, 0)
        assert door.waits(waiting)
        assert (rung(door.pid), pending(door)) == (before, 1)
    assert door.end(waiting)["result"] == 0
    until(lambda: pending(door) == 0)
