# SPDX-License-Identifier: Apache-2.0
"""Channels that the driver frees with something that no call about them names: their program is paused all the same."""

from __future__ import annotations

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import load, row, unload, vctxs
from tests.vm.guest.nvsim_rm import Block, Rm
from tests.vm.guest.nvsim_tools import klass_of, tsg, vas
from tests.vm.guest.nvsim_work import ENDLESS, ENTRIES, Channel, Doorbell, table
from tests.vm.guest.sched_hidden import Play, Programs, of, program, share, started
from tests.vm.guest.sched_tools import COPY0, family, runs, worker

__all__ = ["family", "program", "worker"]  # fixtures


def context(rm: Rm, group: int, space: int) -> int:
    handle = rm.handle()
    params = Block.of("NV_CTXSHARE_ALLOCATION_PARAMETERS", hVASpace=space)
    assert rm.alloc("FERMI_CONTEXT_SHARE_A", group, handle, params)[0] == 0
    return handle


def copied(rm: Rm, source: Rm, handle: int, parent: int | None = None) -> int:
    copy = rm.handle()
    assert rm.dup(source.client, handle, copy, parent=parent) == 0
    return copy


def runs_endless(rm: Rm) -> Channel:
    channel = started(rm)
    channel.submit(Doorbell(rm), ENDLESS)
    return channel


def in_duplicates(group: bool, context_too: bool) -> Play:
    """A channel in a duplicate of another client's group, context share or both, beside one that runs.

    The duplicate of their space goes.
    """
    one, other = Rm.start(), Rm.start()
    space = vas(one)
    of_one = tsg(one, space)
    spaces = [copied(other, one, space) for _ in range(2)]
    own = vas(other)
    into = copied(other, one, of_one) if group else tsg(other, own)
    via = copied(other, one, context(one, of_one, space), into) if context_too else context(other, into, own)
    channel = Channel(other, into, share=via, space=spaces[1] if context_too else own)
    yield from ends(other, runs_endless(other), channel.handle, spaces[0])


def bare() -> Play:
    """A channel in no group; the one that the driver made for it goes."""
    rm = Rm.start()
    space = vas(rm)
    like = Channel(rm, tsg(rm, space, COPY0), space=space)
    assert rm.free(like.handle) == 0
    params = Block.of(
        "NV_CHANNEL_ALLOC_PARAMS",
        gpFifoEntries=ENTRIES,
        gpFifoOffset=like.base + 0x1000,
        engineType=COPY0,
        hVASpace=space,
    )
    params.put("hUserdMemory", like.memory, 0)
    handle = rm.handle()
    assert rm.alloc("HOPPER_CHANNEL_GPFIFO_A", rm.device, handle, params)[0] == 0
    yield from ends(rm, runs_endless(rm), handle, params.get("hPhysChannelGroup"))


def ends(rm: Rm, runs: Channel, channel: int, base: int) -> Play:
    yield {"clients": [rm.client]}
    assert klass_of(rm, channel) is not None
    assert rm.free(base) == 0
    assert klass_of(rm, channel) is klass_of(rm, base) is None
    assert klass_of(rm, runs.handle) is not None
    yield {}


WAYS = [(in_duplicates, True, False), (in_duplicates, False, True), (in_duplicates, True, True), (bare,)]
every_way = pytest.mark.parametrize("words", WAYS, ids=["group", "context share", "both", "bare"])


def paused(family: genl.DetShare, words: dict[str, int], clients: list[int]) -> None:
    answer = row(family.hold_set(gate=False, pause=True, **words))
    assert (answer["failed"], answer["paused"]) == (0, answer["vctxs"])
    assert share(clients, 0.3) == 0


def resumed(family: genl.DetShare, words: dict[str, int], clients: list[int]) -> None:
    family.hold_del(**words)
    until(lambda: share(clients, 0.2) > 0)
    assert {each["channels_off"] for each in runs(family) if each["pid"] == words["pid"]} == {0}


@every_way
def test_who_has_dead_channels_is_paused(family: genl.DetShare, program: Programs, words: tuple[object, ...]) -> None:
    one = program(*words)
    one.ask()
    paused(family, of(one), one.clients)
    resumed(family, of(one), one.clients)


@every_way
def test_channels_that_die_in_a_pause_do_not_outlast_it(
    family: genl.DetShare, program: Programs, words: tuple[object, ...]
) -> None:
    one = program(*words)
    paused(family, of(one), one.clients)
    one.ask()
    resumed(family, of(one), one.clients)
    paused(family, of(one), one.clients)
    resumed(family, of(one), one.clients)


@every_way
def test_they_are_known_to_be_dead(family: genl.DetShare, program: Programs, words: tuple[object, ...]) -> None:
    one = program(*words)
    one.ask()
    known = {each["client"]: each["objects"] for each in vctxs(family, one.pid)}
    true = {int(each["client"], 16): int(each["objects"]) for each in table("clients")}
    assert {client: known[client] for client in one.clients} == {client: true[client] for client in one.clients}


@every_way
def test_of_a_client_older_than_the_module(program: Programs, words: tuple[object, ...]) -> None:
    """How its channels hang together nobody has seen."""
    unload()
    one = program(*words)
    load()
    one.ask()
    with genl.DetShare() as again:
        paused(again, of(one), one.clients)
        resumed(again, of(one), one.clients)
