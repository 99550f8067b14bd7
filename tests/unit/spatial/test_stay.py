# SPDX-License-Identifier: Apache-2.0
"""Whose the room is that a park made."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from detshare.runtime import board_layout as layout
from detshare.runtime import room as module
from detshare.runtime.residence import Residence
from detshare.runtime.room import MOST_NS, Room
from detshare.runtime.tenant import idle_s, wants

S = 1_000_000_000
MIB = 1 << 20


class Page(defaultdict[str, int]):
    def get(self, name: str, default: Any = None) -> int:
        return self[name]


class Case:
    """Three tenants of one GPU and one of another; a clock; whose pages were written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000 * S
        self.shown: list[int] = []
        self.all: dict[str, Any] = {}
        for pid, gpu in ((1, "GPU-a"), (2, "GPU-a"), (3, "GPU-a"), (4, "GPU-b")):
            record = SimpleNamespace(pid=pid, gpu=SimpleNamespace(uuid=gpu))
            pages = SimpleNamespace(counters=Page(int))
            self.all[str(pid)] = SimpleNamespace(record=record, pages=pages, park=Residence(), slot=Page(int))
        policies: Any = SimpleNamespace(show=lambda tenant: self.shown.append(tenant.record.pid))
        self.room = Room(self.all, policies)
        monkeypatch.setattr(module, "monotonic_ns", lambda: self.now)

    def put(self, pid: int, **values: int) -> None:
        self.all[str(pid)].pages.counters.update(values)

    def tick(self, seconds: float = 0.25) -> None:
        self.now += int(seconds * S)
        self.room.tick(self.now)

    def stays(self) -> list[int]:
        return [each.record.pid for each in self.all.values() if each.park.stay_until > self.now]

    def wants(self, pid: int) -> int:
        return wants(self.all[str(pid)], self.now)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


def test_everybody_who_is_away_stays_until_the_first_has_its_memory(case: Case) -> None:
    case.put(1, room_bytes=30 * MIB)
    case.put(3, park_state=layout.PARK_WAITING, parked_bytes=50 * MIB)
    case.put(4, park_state=layout.PARK_WAITING, parked_bytes=50 * MIB)
    assert (case.wants(1), case.wants(2), case.wants(3), case.wants(4)) == (30 * MIB, 0, 50 * MIB, 50 * MIB)
    assert case.room.presses()
    case.room.give(case.all["2"], 1)
    assert case.stays() == [2, 3]  # 2 is about to leave
    assert case.wants(3) == 0  # it is not its turn, so nobody is to make room for it
    case.put(2, park_state=layout.PARK_AWAY)
    case.tick()
    assert case.stays() == [2, 3]
    case.put(1, room_bytes=0)
    case.tick()
    assert case.stays() == []
    assert case.wants(3) == 50 * MIB


def test_who_waits_to_come_home_is_first_until_it_is_home(case: Case) -> None:
    case.put(1, park_state=layout.PARK_WAITING, parked_bytes=MIB)
    case.room.give(case.all["2"], 1)
    assert case.stays() == [2]
    case.put(1, park_state=layout.PARK_COMING)
    case.tick()
    assert case.stays() == [2]
    case.put(1, park_state=layout.PARK_HOME, parked_bytes=0)
    case.tick()
    assert case.stays() == []


def test_the_first_has_its_time_and_no_more(case: Case) -> None:
    case.put(1, room_bytes=MIB)
    case.put(2, park_state=layout.PARK_AWAY)
    case.room.give(case.all["2"], 1)
    case.tick(MOST_NS / S - 1)
    assert case.stays() == [2]
    case.tick(2)
    assert case.stays() == []
    assert case.all["2"].park.stay_until == 0


def test_in_mid_exchange_it_has_more_time_for_as_long_as_it_comes(case: Case) -> None:
    """One that stands still, or lies, kept the others of its GPU away without end."""
    del case.all["3"]
    case.put(1, park_state=layout.PARK_WAITING, parkable_bytes=100 * MIB, parked_bytes=60 * MIB)
    case.put(2, park_state=layout.PARK_AWAY, parkable_bytes=100 * MIB, parked_bytes=40 * MIB)
    case.room.give(case.all["2"], 1)
    for left in (50, 40, 30):
        case.tick(MOST_NS / S - 1)
        assert case.stays() == [2]
        case.put(1, parked_bytes=left * MIB)
        case.tick()
    case.put(2, park_state=layout.PARK_WAITING)
    case.tick(MOST_NS / S - 1)
    assert case.stays() == [2]
    case.put(1, parked_bytes=31 * MIB)
    case.tick(2)
    assert case.stays() == []
    assert case.all["1"].park.leaves
    case.tick()
    assert case.stays() == [1]  # the other one is first now, though it lacks more
    assert case.all["2"].park.comes
    case.put(2, parked_bytes=0, park_state=layout.PARK_HOME)
    case.tick()
    assert case.stays() == []


def test_who_ends_keeps_nobody_away(case: Case) -> None:
    case.put(1, room_bytes=MIB)
    case.put(2, park_state=layout.PARK_AWAY)
    case.room.give(case.all["2"], 1)
    del case.all["1"]
    case.tick()
    assert case.stays() == []


def test_the_next_one_is_first_and_does_not_stay(case: Case) -> None:
    case.put(1, room_bytes=MIB)
    case.put(2, park_state=layout.PARK_AWAY)
    case.room.give(case.all["2"], 1)
    case.put(1, room_bytes=0)
    case.put(2, park_state=layout.PARK_WAITING, parked_bytes=MIB)
    case.room.give(case.all["1"], 2)
    assert case.stays() == [1]
    assert case.wants(2) == MIB


def test_for_somebody_of_another_gpu_nobody_stays(case: Case) -> None:
    case.put(4, room_bytes=MIB)
    case.room.give(case.all["2"], 4)
    case.room.give(case.all["2"], 77)
    case.room.give(case.all["2"], 2)
    assert case.stays() == []
    assert case.shown == []


def test_idle_is_counted_from_the_last_launch(case: Case) -> None:
    tenant = case.all["1"]
    assert idle_s(tenant, case.now) == 0  # nothing was seen yet
    case.put(1, last_launch=case.now - 3 * S)
    assert idle_s(tenant, case.now) == 3
    tenant.park.home_ns = case.now - S
    assert idle_s(tenant, case.now) == 1
    tenant.slot["active"] = 1
    assert idle_s(tenant, case.now) == 0
