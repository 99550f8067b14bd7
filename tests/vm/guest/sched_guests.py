# SPDX-License-Identifier: Apache-2.0
"""Duplicates of a channel group, whoever has them from whom: its maker's orders hold, and who has one is not paused."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import load, row, unload
from tests.vm.guest.nvsim_rm import Block, Rm, status
from tests.vm.guest.nvsim_tools import klass_of, tsg
from tests.vm.guest.nvsim_work import Channel
from tests.vm.guest.sched_hidden import Play, Program, Programs, of, program, started
from tests.vm.guest.sched_tools import Worker, family, tsgs, worker

__all__ = ["family", "program", "worker"]  # fixtures

CAP_SYS_ADMIN = 21
SHARE_GROUPS = Path("/sys/module/detshare/parameters/share_groups")
SLICE_US, ALL = 700, "RS_SHARE_TYPE_ALL"
CHOSEN = ("slice_us", "level", "wfi", "endless", "realtime")


@pytest.fixture(autouse=True)
def sharing() -> Iterator[None]:
    """Managed programs may share channel groups here, as MPS does."""
    SHARE_GROUPS.write_text("2")
    yield
    SHARE_GROUPS.write_text("1")


def maker(generous: bool = True) -> Play:
    """It lets everybody duplicate its channel group, if generous."""
    rm = Rm.start()
    channel = Channel(rm)
    channel.compute()
    assert channel.schedule() == 0
    if generous:
        assert rm.share(channel.group, ALL) == 0
    while True:
        yield {"clients": [rm.client], "group": channel.group}


def distrusted() -> None:
    """This process has no CAP_SYS_ADMIN any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    for i in range(3):
        data[i] &= ~(1 << CAP_SYS_ADMIN)
    assert libc.capset(header, data) == 0


def steer(rm: Rm, group: int) -> None:
    """Whatever the answers: what counts is what comes of it."""
    distrusted()
    rm.control(group, "NVA06C_CTRL_CMD_SET_TIMESLICE", Block.of("NVA06C_CTRL_TIMESLICE_PARAMS", timesliceUs=50_000))
    level = Block.of("NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS", tsgInterleaveLevel=2)
    rm.control(group, "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", level)
    rm.control(group, "NVA06C_CTRL_CMD_MAKE_REALTIME", Block.of("NVA06C_CTRL_MAKE_REALTIME_PARAMS", bRealtime=1))
    mode = Block.of("NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS", flags=1, hChannel=group)
    rm.control(rm.subdevice, "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE", mode)


def copied(rm: Rm, client: int, group: int) -> int:
    copy = rm.handle()
    assert rm.dup(client, group, copy) == 0
    return copy


def once(client: int, group: int) -> Play:
    rm = Rm.start()
    copy = copied(rm, client, group)
    yield {"clients": [rm.client]}
    steer(rm, copy)
    yield {}


def twice(client: int, group: int, kept: bool) -> Play:
    """A second client of the same program has it from the first."""
    one, other = Rm.start(), Rm.start()
    first = copied(one, client, group)
    copy = copied(other, one.client, first)
    if not kept:
        one.close()
    yield {"clients": [one.client, other.client]}
    steer(other, copy)
    yield {}


def within(client: int, group: int) -> Play:
    """The same client has it twice, and frees the first."""
    rm = Rm.start()
    first = copied(rm, client, group)
    copy = copied(rm, rm.client, first)
    assert rm.free(first) == 0
    yield {"clients": [rm.client]}
    steer(rm, copy)
    yield {}


def after_one_of_its_own(client: int, group: int) -> Play:
    """What the second client has is duplicated while the first has both."""
    one, other = Rm.start(), Rm.start()
    copied(other, one.client, Channel(one).group)
    copy = copied(other, one.client, copied(one, client, group))
    yield {"clients": [one.client, other.client]}
    steer(other, copy)
    yield {}


def passing_on(client: int, group: int) -> Play:
    rm = Rm.start()
    copy = copied(rm, client, group)
    assert rm.share(copy, ALL) == 0
    yield {"clients": [rm.client], "group": copy}
    yield {}


WAYS: list[tuple[Any, ...]] = [(once,), (twice, True), (twice, False), (within,), (after_one_of_its_own,)]
NAMES = ["once", "twice", "twice, the first client gone", "within a client", "beside one of its own"]


def chosen(who: Program) -> tuple[object, ...]:
    (found,) = (each for each in tsgs() if each["client"] == who.clients[0])
    return tuple(found[name] for name in CHOSEN)


def ordered(family: genl.DetShare, who: Program) -> tuple[object, ...]:
    assert row(family.sched_set(who.pid, None, SLICE_US, genl.DETSHARE_LEVEL_LOW))["tsgs_set"] == 1
    until(lambda: chosen(who)[0] == SLICE_US)
    return chosen(who)


def is_paused(family: genl.DetShare, who: Program | Worker) -> bool:
    try:
        family.hold_set(gate=False, pause=True, **of(who))
    except NetlinkError as refused:
        if refused.code != errno.EOPNOTSUPP:
            raise
        return False
    family.hold_del(**of(who))
    return True


@pytest.mark.parametrize("words", WAYS, ids=NAMES)
def test_the_makers_order_stands(family: genl.DetShare, program: Programs, words: tuple[Any, ...]) -> None:
    one = program(maker)
    way, *more = words
    guest = program(way, one.clients[0], one.ready["group"], *more)
    before = ordered(family, one)
    guest.ask()
    assert chosen(one) == before


def giving(carrier: int) -> Play:
    """It gives its channel group away by a descriptor that the other has too."""
    rm = Rm.start()
    group = started(rm).group
    rm.export(group, carrier)
    yield {"clients": [rm.client]}


def finding(carrier: int) -> Play:
    rm = Rm.start()
    copy = rm.handle()
    rm.take(carrier, copy)
    yield {"clients": [rm.client]}
    steer(rm, copy)
    yield {}


def test_it_stands_whatever_goes_by_descriptor(family: genl.DetShare, program: Programs) -> None:
    carrier = os.open("/dev/nvidiactl", os.O_RDWR)
    one, guest = program(giving, carrier), program(finding, carrier)
    os.close(carrier)
    before = ordered(family, one)
    guest.ask()
    assert chosen(one) == before


def test_what_is_older_than_the_module_goes_no_further_by_descriptor(worker: Callable[..., Worker]) -> None:
    unload()
    one, other = Rm.start(), Rm.start()
    group = tsg(one)
    one.next += 100_000  # so far away that it is not found
    far = tsg(one)
    carrier = one.open("nvidiactl")
    assert one.export(group, carrier) == 0
    load()
    copy = other.handle()
    assert other.take(carrier, copy) != 0
    assert klass_of(other, copy) is None
    assert one.export(far, one.open("nvidiactl")) == status("NV_ERR_INSUFFICIENT_PERMISSIONS")
    one.close()
    other.close()
    assert tsgs() == []


def test_it_stands_for_who_has_it_from_a_guest(family: genl.DetShare, program: Programs) -> None:
    one = program(maker)
    middle = program(passing_on, one.clients[0], one.ready["group"])
    last = program(once, middle.clients[0], middle.ready["group"])
    before = ordered(family, one)
    middle.end()
    last.ask()
    assert chosen(one) == before


@pytest.mark.parametrize("words", WAYS, ids=NAMES)
def test_nobody_is_paused_who_has_it_in_common(
    family: genl.DetShare, program: Programs, words: tuple[Any, ...]
) -> None:
    one = program(maker)
    way, *more = words
    assert is_paused(family, one)
    guest = program(way, one.clients[0], one.ready["group"], *more)
    assert not is_paused(family, one)
    guest.end()
    until(lambda: is_paused(family, one))


def test_a_program_with_its_own_alone_is_paused_again(family: genl.DetShare, worker: Callable[..., Worker]) -> None:
    server = worker("nvbackground", "--share")
    client = worker("nvbackground", "--join", f"{server.ready['client']}:{server.ready['tsg']}")
    assert not is_paused(family, server)
    assert not is_paused(family, client)
    client.end()
    until(lambda: is_paused(family, server))


def trying(client: int, group: int) -> Play:
    rm, other = Rm.start(), Rm.start()
    assert rm.dup(client, group, rm.handle()) != 0
    copied(other, rm.client, Channel(rm).group)
    yield {"clients": [rm.client]}
    yield {}


def test_who_may_not_have_it_makes_nobody_unpausable(family: genl.DetShare, program: Programs) -> None:
    one = program(maker, False)
    program(trying, one.clients[0], one.ready["group"])
    assert is_paused(family, one)
