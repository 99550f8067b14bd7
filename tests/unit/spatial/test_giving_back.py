# SPDX-License-Identifier: Apache-2.0
"""Who gives host memory back when somebody else has to be parked, and what the daemon counts then."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core import config
from detshare.ctl.core.driver import ProcessId
from detshare.runtime import arena as arenas
from detshare.runtime import board_layout as layout
from detshare.runtime import parking as module
from detshare.runtime.arena import Arena
from detshare.runtime.directory import uuid_text
from detshare.runtime.parking import Parking
from detshare.runtime.reflexes import Desired
from detshare.runtime.residence import Residence
from detshare.runtime.tenant import Refused

MIB = 1 << 20
UUID = b"u" * 16


class Page:
    def __init__(self) -> None:
        self.values: defaultdict[str, int] = defaultdict(int)

    def get(self, name: str) -> int:
        return self.values[name]


class Machine:
    """An arena of so many MiB and programs, each with so much of it; those of `mute` do not answer."""

    def __init__(self, limit: int) -> None:
        self.everybody: dict[str, Any] = {}
        self.asked: list[int] = []
        self.mute: set[int] = set()
        policies: Any = SimpleNamespace(show=self._show)
        self.arena = Arena(limit * MIB)
        self.parking = Parking(self.everybody, threading.RLock(), policies, self.arena, lambda *_: None)

    def add(self, pid: int, has: int, launched: int, state: int = layout.PARK_HOME) -> Any:
        uuid = uuid_text(UUID)
        record = SimpleNamespace(
            pid=pid, process=ProcessId(pid, 1), gpu=SimpleNamespace(uuid=uuid), page=uuid, desired=Desired()
        )
        pages = SimpleNamespace(counters=Page())
        pages.counters.values |= {"arena_bytes": has * MIB, "last_launch": launched, "park_state": state}
        tenant = SimpleNamespace(record=record, pages=pages, park=Residence(arena=has * MIB))
        self.everybody[str(pid)] = tenant
        return tenant

    def _show(self, tenant: Any) -> None:
        self.asked.append(tenant.record.pid)
        if tenant.record.pid not in self.mute:
            self.answer(tenant)

    @staticmethod
    def answer(tenant: Any) -> None:
        """As the library does it."""
        counters = tenant.pages.counters.values
        if counters["park_state"] == layout.PARK_HOME:
            counters["arena_bytes"] = 0
        counters["returned"] = tenant.park.returns

    def give(self, pid: int, size: int) -> None:
        os.close(self.parking.give(pid, UUID, size * MIB))


def test_who_was_idle_longest_gives_and_no_more_than_needed() -> None:
    machine = Machine(10)
    machine.add(1, 3, launched=50)
    machine.add(2, 4, launched=20)
    machine.add(3, 0, launched=99)
    machine.give(3, 5)
    assert machine.asked == [2]
    assert [tenant.park.arena // MIB for tenant in machine.everybody.values()] == [3, 0, 5]
    machine.add(4, 0, launched=99)
    machine.give(4, 2)  # there is room
    assert machine.asked == [2]


def test_who_leaves_in_parts_has_what_others_only_keep_though_it_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an exchange of two stands still for copies of a third, while the GPU is full."""
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    machine = Machine(20)
    machine.add(1, 12, launched=1, state=layout.PARK_WAITING)
    machine.add(2, 8, launched=5)
    machine.add(3, 0, launched=9)
    with pytest.raises(Refused, match="are needed"):
        machine.give(3, 12)
    assert machine.asked == []
    descriptor = machine.parking.give_some(3, UUID, 12 * MIB)
    assert os.fstat(descriptor).st_size == 8 * MIB
    os.close(descriptor)
    assert machine.asked == [2]
    assert [tenant.park.arena // MIB for tenant in machine.everybody.values()] == [12, 0, 8]
    machine.everybody["3"].pages.counters.values["arena_bytes"] = 8 * MIB
    with pytest.raises(Refused, match="has 0B left now"):
        machine.parking.give_some(3, UUID, 4 * MIB)
    assert machine.asked == [2]
    assert machine.everybody["3"].park.arena == 8 * MIB


def test_who_is_parked_for_being_idle_leaves_as_a_whole_or_not_at_all() -> None:
    """Also where it left in parts before, to make room for somebody."""
    machine = Machine(20)
    tenant = machine.add(1, 0, launched=1)
    tenant.pages.counters.values["parkable_bytes"] = 8 * MIB
    tenant.slot = SimpleNamespace(get=lambda _name: 0, held=False)
    tenant.record.desired = Desired(park_after=0.001)
    tenant.park.leaves, tenant.park.room_for, tenant.park.since_ns = True, 7, 1
    before = tenant.park.asked
    machine.parking._look(tenant)
    assert tenant.park.asked != before
    assert (tenant.park.leaves, tenant.park.room_for) == (False, 0)


def test_more_is_counted_beside_what_it_has() -> None:
    machine = Machine(10)
    machine.add(1, 6, launched=1)
    machine.give(1, 3)
    assert machine.everybody["1"].park.arena == 9 * MIB
    machine.everybody["1"].pages.counters.values["arena_bytes"] = 9 * MIB
    with pytest.raises(Refused, match="the arena of 10M has 10M left, and 13M are needed"):
        machine.give(1, 4)
    assert machine.everybody["1"].park.arena == 9 * MIB
    assert machine.asked == []


@pytest.mark.parametrize("why", ["parked", "leaving", "asked", "owes", "too little"])
def test_who_needs_it_is_not_asked(why: str) -> None:
    machine = Machine(10)
    state = {"parked": layout.PARK_AWAY, "leaving": layout.PARK_LEAVING}.get(why, layout.PARK_HOME)
    first = machine.add(1, 1 if why == "too little" else 8, launched=1, state=state)
    second = machine.add(2, 8 if why == "too little" else 0, launched=1, state=layout.PARK_AWAY)
    if why == "asked":
        first.park.asked = 7  # a park is on its way
    first.park.owes = why == "owes"
    machine.add(3, 0, launched=2)
    with pytest.raises(Refused, match="are needed"):
        machine.give(3, 5)
    assert machine.asked == []
    assert (first.park.arena + second.park.arena) // MIB in (8, 9)


def test_who_does_not_answer_is_waited_for_and_counted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    machine = Machine(10)
    first = machine.add(1, 8, launched=1)
    machine.add(2, 0, launched=2)
    machine.mute = {1}
    with pytest.raises(Refused):
        machine.give(2, 5)
    assert (first.park.owes, first.park.arena) == (True, 8 * MIB)
    machine.answer(first)
    machine.parking._owes(first)
    assert (first.park.owes, first.park.arena) == (False, 0)
    machine.give(2, 5)
    assert machine.asked == [1]


def test_who_began_to_park_keeps_it() -> None:
    """The library answers, and gives nothing back: its memory lies there."""
    machine = Machine(10)
    first = machine.add(1, 8, launched=1)
    machine.add(2, 0, launched=2)
    show = machine.parking._policies.show

    def parks_first(tenant: Any) -> None:
        tenant.pages.counters.values["park_state"] = layout.PARK_LEAVING
        show(tenant)

    machine.parking._policies.show = parks_first  # type: ignore[method-assign]
    with pytest.raises(Refused):
        machine.give(2, 5)
    assert first.park.arena == 8 * MIB


def test_a_full_host_asks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1 << 20)
    machine.add(1, 8, launched=1)
    machine.add(2, 0, launched=2)
    room = [4 * MIB]
    monkeypatch.setattr(arenas, "_available", lambda: int(arenas.host_bytes() * arenas._SPARE) + room[0])
    with pytest.raises(Refused, match="the host has 4M to spare"):
        machine.give(2, 5)  # its room is told to be no more than before
    assert machine.asked == [1]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=6), st.integers(1, 20))
def test_nobody_is_asked_in_vain_and_no_more_is_given_than_there_is(programs: list[tuple[int, int]], size: int) -> None:
    machine = Machine(20)
    for pid, (has, launched) in enumerate(programs, 1):
        if sum(tenant.park.arena for tenant in machine.everybody.values()) + has * MIB <= machine.arena.limit:
            machine.add(pid, has, launched)
    machine.add(99, 0, launched=9)
    spare = sum(tenant.park.arena for tenant in machine.everybody.values())
    machine.give(99, size)  # everybody is at home: there is always room
    assert sum(tenant.park.arena for tenant in machine.everybody.values()) <= machine.arena.limit
    assert (machine.asked != []) is (spare + size * MIB > machine.arena.limit)


def test_the_off_switch_is_a_setting() -> None:
    assert config.parse(b"").park.incremental
    assert not config.parse(b"[park]\nincremental = false").park.incremental
    with pytest.raises(config.ConfigError, match=r"park\.incremental"):
        config.parse(b'[park]\nincremental = "no"')
