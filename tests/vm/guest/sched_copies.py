# SPDX-License-Identifier: Apache-2.0
"""Channel groups of a copy engine that shares the graphics run list: what computes there is seen, paid and held."""

from __future__ import annotations

import os
import time

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import PID, row
from tests.vm.guest.nvsim_rm import Block, Rm, status
from tests.vm.guest.nvsim_tools import tsg, vas
from tests.vm.guest.nvsim_work import ENDLESS, ENTRIES, Channel, Doorbell
from tests.vm.guest.sched_hidden import (
    BURST,
    ESCAPED,
    RATE,
    Play,
    Programs,
    Workers,
    held_by_a_higher_class,
    of,
    program,
    share,
    started,
)
from tests.vm.guest.sched_tools import COPY0, GR0, family, runs, tsgs, worker

__all__ = ["family", "program", "worker"]  # fixtures


def copy_group(late: bool = False, forget: bool = False) -> Play:
    """A compute object in a copy group, made before the channel is scheduled or at the launch, perhaps freed then."""
    rm = Rm.start()
    bell, space = Doorbell(Rm.start()), vas(rm)
    channel = Channel(rm, tsg(rm, space, COPY0), space=space)
    work = rm.handle()

    def compute() -> None:
        assert rm.alloc("HOPPER_COMPUTE_A", channel.handle, work, Block.of("NV_GR_ALLOCATION_PARAMETERS"))[0] == 0

    if not late:
        compute()
    assert channel.schedule() == 0
    yield {"clients": [rm.client]}
    if late:
        compute()
    channel.submit(bell, ENDLESS)
    if forget:
        while not channel.ran_ns:
            time.sleep(0.001)
        assert rm.free(work) == 0
    yield {}


def duplicated() -> Play:
    """The compute object is in a duplicate of another client's copy group."""
    one, other = Rm.start(), Rm.start()
    bell, copy = Doorbell(Rm.start()), other.handle()
    assert other.dup(one.client, tsg(one, vas(one), COPY0), copy) == 0
    channel = Channel(other, copy, space=vas(other))
    channel.compute()
    assert channel.schedule() == 0
    yield {"clients": [one.client, other.client]}
    channel.submit(bell, ENDLESS)
    yield {}


WAYS = [(copy_group,), (copy_group, True), (copy_group, False, True), (copy_group, True, True), (duplicated,)]
NAMES = ["first", "late", "forgotten", "late and forgotten", "duplicated"]
every_way = pytest.mark.parametrize("words", WAYS, ids=NAMES)


def slices(clients: list[int]) -> set[int]:
    return {each["slice_us"] for each in tsgs(engines=(GR0, COPY0)) if each["client"] in clients}


@every_way
def test_a_pause_holds_it(family: genl.DetShare, program: Programs, words: tuple[object, ...]) -> None:
    one = program(*words)
    one.ask()
    assert share(one.clients, 0.3) > 0
    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert answer["paused"] == answer["vctxs"] == len(one.clients) + 1  # with who has the doorbell
    assert answer["failed"] == 0
    assert share(one.clients, 0.5) == 0
    family.hold_del(**of(one))
    until(lambda: share(one.clients, 0.2) > 0)


@every_way
def test_a_bucket_holds_it(family: genl.DetShare, program: Programs, words: tuple[object, ...]) -> None:
    one = program(*words)
    family.bucket_set(RATE, BURST, **of(one))
    time.sleep(0.5)
    one.ask()
    assert share(one.clients, 3) < ESCAPED


@every_way
@pytest.mark.parametrize("before", [True, False], ids=["ordered before", "ordered after"])
def test_the_slice_of_its_class_reaches_it(
    family: genl.DetShare, program: Programs, words: tuple[object, ...], before: bool
) -> None:
    one = program(*words)
    family.class_set("low", slice_us=77)
    if before:
        family.sched_set(one.pid, "low")
    one.ask()
    if not before:
        assert slices(one.clients) != {77}
        assert row(family.sched_set(one.pid, "low"))["tsgs_set"] == 1
    assert slices(one.clients) == {77}


@every_way
def test_a_lower_class_is_held_with_it(
    family: genl.DetShare, program: Programs, worker: Workers, words: tuple[object, ...]
) -> None:
    held_by_a_higher_class(family, program(*words), worker("nvbackground", "--endless"))


def plain_copies(of_graphics: bool) -> Play:
    """A copy group without any object, beside one that computes or alone; then it asks for it to be scheduled."""
    rm = Rm.start()
    space = vas(rm)
    if of_graphics:
        started(rm)
    copies = Channel(rm, tsg(rm, space, COPY0), space=space)
    yield {"clients": [rm.client]}
    yield {"status": copies.schedule()}


@pytest.mark.parametrize("of_graphics", [True, False], ids=["beside compute", "alone"])
def test_a_pause_takes_copies_too(family: genl.DetShare, program: Programs, of_graphics: bool) -> None:
    one = program(plain_copies, of_graphics)

    def copies() -> dict[str, int | str]:
        (found,) = tsgs(engines=(COPY0,))
        return found

    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["vctxs"], answer["paused"], answer["failed"]) == (1, 1, 0)
    assert copies()["off"] == 1
    assert [run["channels_off"] for run in runs(family) if run["pid"] == one.pid] == [1 + of_graphics]
    one.go()
    time.sleep(0.3)
    assert copies()["state"] == "off", "it waits for the end of the pause"
    family.hold_del(**of(one))
    assert one.answer()["status"] == 0
    assert copies()["off"] == 0


def bare() -> Play:
    """A channel of a copy engine in no channel group, then a compute object on it."""
    rm = Rm.start()
    space = vas(rm)
    like = Channel(rm, tsg(rm, space, COPY0), space=space)
    assert rm.free(like.handle) == 0
    like.handle = rm.handle()
    params = Block.of(
        "NV_CHANNEL_ALLOC_PARAMS",
        gpFifoEntries=ENTRIES,
        gpFifoOffset=like.base + 0x1000,
        engineType=COPY0,
        hVASpace=space,
    )
    params.put("hUserdMemory", like.memory, 0)
    assert rm.alloc("HOPPER_CHANNEL_GPFIFO_A", rm.device, like.handle, params)[0] == 0
    yield {"pid": os.getpid()}
    params = Block.of("NV_GR_ALLOCATION_PARAMETERS")
    yield {"status": rm.alloc("HOPPER_COMPUTE_A", like.handle, rm.handle(), params)[0]}


@pytest.mark.parametrize("held", ["managed", "limited", "unmanaged"])
def test_who_is_held_computes_in_no_bare_channel(family: genl.DetShare, program: Programs, held: str) -> None:
    """Nor does who has a limit: its context buffers are bounded by the number of channel groups."""
    one = program(bare)
    if held == "managed":
        family.class_set("low", slice_us=77)
        family.sched_set(one.pid, "low")
    elif held == "limited":
        family.limit_set(1 << 30, kind=PID, pid=one.pid)
    assert (one.ask()["status"] == status("NV_OK")) is (held == "unmanaged")
