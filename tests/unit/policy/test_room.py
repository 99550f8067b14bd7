# SPDX-License-Identifier: Apache-2.0
"""Who makes room when GPU memory is full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detshare.ctl.core.errors import ControlError
from detshare.ctl.policy import registry
from detshare.ctl.policy.guard import Guard
from detshare.ctl.policy.shipped.room import Room, turn_us
from detshare.ctl.policy.types import Park, Snapshot, TenantView

GIB = 1 << 30


def view(name: str, klass: str = "normal", **more: Any) -> TenantView:
    plain: dict[str, Any] = {"residence": "home", "parkable_bytes": 8 * GIB, "active": True, "queued": 1} | more
    plain = {"sms": 0, "slice_us": 2048.0, "level": 1, "gate_open": True, "in_flight_us": 0.0, "kind": ""} | plain
    return TenantView(name=name, klass=klass, launches=0, **plain)


def waiting(klass: str = "normal", **more: Any) -> TenantView:
    return view("9", klass, residence="waiting", wants_bytes=8 * GIB, **more)


def asked(how: str, *tenants: TenantView, now_us: float = 1e9, room: Room | None = None) -> list[Park]:
    now = Snapshot(now_us, "temporal", 132, tenants, gpu="GPU-1")
    found = list((room or Room(how, 10.0)).make(now))
    assert all(Guard().check(each, now) is None for each in found)
    return found


def names(parks: list[Park]) -> list[str]:
    return [each.tenant for each in parks]


def test_refuse_asks_nobody() -> None:
    assert asked("refuse", waiting(), view("1", "low", active=False, idle_us=1e9)) == []


def test_the_lowest_class_goes_first_and_of_that_the_longest_idle() -> None:
    idle = {"active": False, "queued": 0}
    mix = [
        view("1", "normal", idle_us=9e6, **idle),
        view("2", "low", idle_us=2e6, **idle),
        view("3", "low", idle_us=5e6, **idle),
        view("4", "low"),
    ]
    assert names(asked("park", waiting("high"), *mix)) == ["3"]
    (park,) = asked("park", waiting("high"), *mix)
    assert park.room_for == "9"
    assert park.reason == "9 waits for 8G of GPU memory; 3 launched nothing for 5.0 s"


def test_who_works_makes_room_for_a_higher_class_only() -> None:
    assert asked("park", waiting("normal"), view("1", "normal")) == []
    assert asked("park", waiting("normal"), view("1", "high")) == []
    (park,) = asked("park", waiting("normal"), view("1", "low"))
    assert "has a lower class" in park.reason


def test_a_turn_lasts_until_copies_are_the_share_that_was_stated() -> None:
    holder, other = view("1", copy_us=0.4e6), waiting()
    assert turn_us(holder, other, 10.0) == pytest.approx(4e6)
    assert turn_us(holder, other, 2.0) == pytest.approx(20e6)
    # nobody was copied yet: 8 GiB out and 8 GiB in at 50 GB/s
    assert turn_us(view("1"), other, 10.0) == pytest.approx(16 * GIB / 50e3 * 10, rel=1e-6)
    # small memory: a look is longer than its copies
    assert turn_us(view("1", parkable_bytes=1 << 20), view("9", wants_bytes=1 << 20), 10.0) == 1e6
    assert asked("turns", other, view("1", copy_us=0.4e6, home_us=3.9e6)) == []
    (park,) = asked("turns", other, view("1", copy_us=0.4e6, home_us=4.1e6))
    assert "had its turn of 4.0 s" in park.reason


@pytest.mark.parametrize(("klass", "turns"), [("normal", 4), ("low", 16)])
def test_who_waits_for_a_higher_class_waits_longer_and_not_for_ever(klass: str, turns: int) -> None:
    room, holder = Room("turns", 10.0), view("1", "high", copy_us=0.4e6, home_us=1e9)
    mix = [waiting(klass), holder]
    assert asked("turns", *mix, room=room) == []
    assert asked("turns", *mix, room=room, now_us=1e9 + 4e6 * turns - 1) == []
    assert names(asked("turns", *mix, room=room, now_us=1e9 + 4e6 * turns)) == ["1"]


def test_of_several_who_wait_the_longest_is_next() -> None:
    room = Room("turns", 10.0)
    first, second, third = (view(name, residence="waiting", wants_bytes=GIB) for name in "123")
    holder = view("4", copy_us=0.4e6, home_us=1e6)
    assert asked("turns", second, holder, room=room) == []
    assert asked("turns", first, second, third, holder, room=room, now_us=1e9 + 1e6) == []
    (park,) = asked("turns", first, second, third, view("4", home_us=5e6), room=room, now_us=1e9 + 4e6)
    assert park.room_for == "2"


def test_a_low_class_comes_to_its_turn_between_two_that_are_higher() -> None:
    """The two displace each other every turn: each of its own holders is there for one turn only."""
    room, at, seen = Room("turns", 10.0), 0.0, []
    low = waiting("low")
    for _ in range(200):
        at += 4e6
        pair = [view("1", "high", copy_us=0.4e6), view("2", "high", copy_us=0.4e6)]
        home, away = pair if len(seen) % 2 else pair[::-1]
        away = replace(away, residence="waiting", wants_bytes=8 * GIB)
        (park,) = asked("turns", low, replace(home, home_us=4e6), away, room=room, now_us=at)
        seen.append(park.room_for)
        if seen[-1] == "9":
            break
    assert seen[-1] == "9"
    assert len(seen) > 10


def test_who_waits_itself_stands_still_and_may_be_asked() -> None:
    """Two that each have half of what they need: one of them gives way, whatever the turns."""
    stuck = view("1", active=False, queued=0, idle_us=0.3e6, wants_bytes=GIB)
    assert names(asked("turns", waiting(), stuck)) == ["1"]
    assert names(asked("park", waiting(), stuck)) == ["1"]


def test_one_at_a_time_and_who_refused_is_not_the_first_again() -> None:
    room = Room("park", 10.0)
    idle = {"active": False, "queued": 0, "idle_us": 5e6}
    mix = [waiting(), view("1", "low", **idle), view("2", "normal", **idle)]
    assert names(asked("park", *mix, room=room)) == ["1"]
    assert asked("park", *mix, room=room, now_us=1e9 + 0.5e6) == []
    assert names(asked("park", *mix, room=room, now_us=1e9 + 1.1e6)) == ["2"]  # 1 is still there: it refused
    leaving = [waiting(), view("1", "low", residence="leaving"), view("2", "normal", **idle)]
    assert asked("park", *leaving, now_us=1e9 + 9e6) == []


def test_who_is_paused_in_mid_work_is_not_asked() -> None:
    assert asked("turns", waiting(), view("1", gate_open=False, home_us=1e9)) == []
    assert names(asked("turns", waiting(), view("1", gate_open=False, active=False, idle_us=1e6))) == ["1"]


def test_the_guard_lets_nobody_be_parked_for_nothing() -> None:
    now = Snapshot(1.0, "temporal", 132, (view("1"), view("2", residence="parked"), waiting()))
    guard = Guard()
    assert guard.check(Park("1", "9", "why"), now) is None
    for park, words in [
        (Park("2", "9"), "cannot leave"),
        (Park("1", "2"), "waits for no memory"),
        (Park("1", "1"), "waits for no memory"),
        (Park("1", "7"), "waits for no memory"),
        (Park("7", "9"), "no tenant"),
        (Park("1", 9), "room_for is 9"),  # type: ignore[arg-type]
    ]:
        assert words in str(guard.check(park, now))


@pytest.mark.parametrize("name", ["slo-aware", "strict"])
def test_two_policies_take_it_and_check_what_is_given(name: str) -> None:
    policy = registry.load(name, {"when_full": "park"}).policy
    now = Snapshot(1e9, "temporal", 132, (waiting("high"), view("1", "low")), gpu="GPU-1")
    assert names(list(policy.on_memory_pressure(now, "9"))) == ["1"]  # type: ignore[arg-type]
    assert list(registry.load(name).policy.on_memory_pressure(now, "9")) == []
    for wrong in ({"when_full": "perhaps"}, {"copy_percent": "0"}):
        with pytest.raises(ControlError, match=next(iter(wrong))):
            registry.load(name, wrong)
