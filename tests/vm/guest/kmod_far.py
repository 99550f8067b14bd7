# SPDX-License-Identifier: Apache-2.0
"""Memory of one GPU below the device of another: it is charged where it lies. nvsim tells the truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from detshare.ctl.netlink import genl
from tests.vm.guest.kmod_tools import PID, row
from tests.vm.guest.nvsim_rm import Block, Rm, status, truth
from tests.vm.guest.nvsim_tools import channel, tsg, vas
from tests.vm.guest.sched_tools import family

__all__ = ["family"]  # fixture

MIB = 1 << 20
PIECE, LIMIT = 8 * MIB, 32 * MIB
ME = {"kind": PID, "pid": os.getpid()}

Pair = tuple[Rm, Rm]
Way = Callable[[Rm, Rm, int], int]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Clients of this process: one with a device on GPU 1 alone, one on GPU 0 alone."""
    far, near = Rm.start(minor=1), Rm.start()
    yield far, near
    near.close()
    far.close()


def duplicate(far: Rm, near: Rm, handle: int) -> int:
    return near.dup(far.client, handle, near.handle())


def by_descriptor(far: Rm, near: Rm, handle: int) -> int:
    carrier = near.open("nvidiactl")
    assert far.export(handle, carrier) == 0
    code = near.take(carrier, near.handle())
    # what a file carries stays charged as long as it is open
    os.close(near.extra.pop())
    return code


@pytest.mark.parametrize("way", [duplicate, by_descriptor])
def test_a_limit_holds_what_hangs_below_another_device(family: genl.DetShare, pair: Pair, way: Way) -> None:
    far, near = pair
    family.limit_set(LIMIT, gpu=1, **ME)
    try:
        for _ in range(2 * LIMIT // PIECE):
            if far.memory(PIECE)[0]:
                break
            assert way(far, near, far.last) == 0
            assert far.free(far.last) == 0
        assert truth("used", 1) == LIMIT, "held below the device of GPU 0"
        (limit,) = map(row, family.limit_get())
        assert limit["used"] == LIMIT
        near.close()
        (limit,) = map(row, family.limit_get())
        assert (limit["used"], truth("used", 1)) == (0, 0)
    finally:
        family.limit_del(gpu=1, **ME)


def test_a_limit_where_it_hangs_does_not_count_it(family: genl.DetShare, pair: Pair) -> None:
    far, near = pair
    family.limit_set(PIECE, gpu=0, **ME)
    try:
        assert far.memory(4 * PIECE)[0] == 0
        assert duplicate(far, near, far.last) == 0
        assert near.memory(PIECE)[0] == 0
        assert near.memory(PIECE)[0] == status("NV_ERR_NO_MEMORY")
    finally:
        family.limit_del(gpu=0, **ME)


def test_a_device_of_no_parameters_is_the_first_gpus(family: genl.DetShare, pair: Pair) -> None:
    far, _ = pair
    device = far.handle()
    assert far.alloc_object("NV01_DEVICE_0", far.client, device) == 0
    family.limit_set(LIMIT, gpu=0, **ME)
    try:
        far.device = device
        made = [far.memory(PIECE)[0] for _ in range(2 * LIMIT // PIECE)]
        assert truth("used", 0) == LIMIT
        assert made.count(0) == LIMIT // PIECE
    finally:
        family.limit_del(gpu=0, **ME)


@pytest.fixture
def both() -> Iterator[tuple[Rm, int]]:
    """A client with a device on GPU 0, and one on GPU 1."""
    rm = Rm.start()
    rm.open("nvidia1")
    far = rm.handle()
    assert rm.alloc("NV01_DEVICE_0", rm.client, far, Block.of("NV0080_ALLOC_PARAMETERS", deviceId=1))[0] == 0
    yield rm, far
    rm.close()


def far_memory(rm: Rm, device: int, size: int) -> int:
    """Its status; the last handle of the client is the memory's."""
    near, rm.device = rm.device, device
    code = rm.memory(size)[0]
    rm.device = near
    return code


def test_memory_that_a_channel_of_another_gpu_keeps_does_not_escape(
    family: genl.DetShare, both: tuple[Rm, int]
) -> None:
    rm, far = both
    family.limit_set(LIMIT, gpu=1, **ME)
    try:
        made = tsg(rm, vas(rm))
        for _ in range(2 * LIMIT // PIECE):
            if far_memory(rm, far, PIECE) == 0:
                channel(rm, made, userd=rm.last)
                assert rm.free(rm.last) == 0
        assert truth("used", 1) <= LIMIT
    finally:
        family.limit_del(gpu=1, **ME)


def test_memory_of_another_gpu_that_a_channel_keeps_is_not_counted_on_its_own(
    family: genl.DetShare, both: tuple[Rm, int]
) -> None:
    rm, far = both
    family.limit_set(PIECE, gpu=0, **ME)
    try:
        assert far_memory(rm, far, PIECE // 2) == 0
        channel(rm, tsg(rm, vas(rm)), userd=rm.last)
        assert rm.memory(PIECE)[0] == 0
    finally:
        family.limit_del(gpu=0, **ME)


def test_a_doorbell_stays_with_its_gpu(family: genl.DetShare, pair: Pair) -> None:
    """Below another device it would be behind that GPU's gate."""
    far, near = pair
    code, bell = far.alloc("HOPPER_USERMODE_A", far.subdevice, far.handle(), Block.of("NV_HOPPER_USERMODE_A_PARAMS"))
    assert code == 0
    parent = {"parent": near.subdevice}
    assert near.dup(far.client, bell, near.handle(), **parent) == status("NV_ERR_INVALID_OBJECT_PARENT")
    assert far.export(bell, near.open("nvidiactl")) == status("NV_ERR_INSUFFICIENT_PERMISSIONS")
