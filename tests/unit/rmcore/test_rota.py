# SPDX-License-Identifier: Apache-2.0
"""Turns as kmod/rm/rota.c gives them: the file itself, compiled for user space."""

from __future__ import annotations

import ctypes
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rota_files import MS, NEVER, NONE, TURN, U64, WINDOW, State, Tenant, library

__all__ = ["library"]  # a fixture


class Rota:
    """Tenants 1, 2, ... and a clock; who holds runs from `late` ns after its turn began. Floors: permille."""

    def __init__(self, library: ctypes.CDLL, *tenants: dict[str, int], late: int = 0) -> None:
        made = [Tenant(key=i, turn=100 * MS, wants=True) for i in range(1, len(tenants) + 1)]
        for each, values in zip(made, tenants, strict=True):
            for name, value in ({"rank": 1, "weight": 1} | values).items():
                setattr(each, name, value * (1000 if name == "floor" else 1))
        self.tenants = (Tenant * len(made))(*made)
        self.state = State(tenants=self.tenants, count=len(made))
        self.library, self.late, self.now = library, late, 1000 * MS
        self.given = self.now
        self.on = [False] * len(made)
        self.used = dict.fromkeys(range(len(made) + 1), 0)

    def step(self, closed: bool = False) -> int:
        """When to step again."""
        before = self.state.holder
        span = self.now - int(self.state.stepped or self.now)
        for each, on in zip(self.tenants, self.on, strict=True):
            each.ran = span if on else 0
        when = int(self.library.rm_rota_step(ctypes.byref(self.state), U64(self.now), ctypes.c_bool(closed)))
        assert when > self.now
        if self.state.holder != before:
            self.given = self.now
        self.on = [each.key == self.state.holder and self.now >= self.given + self.late for each in self.tenants]
        return when

    def run(self, ns: int, closed: bool = False, every: int = MS) -> None:
        """Goes on for so long, a step at least each `every`."""
        end = self.now + ns
        when = self.step(closed)
        while self.now < end:
            upto = min(end, when, self.now + every)
            holder = int(self.state.holder)
            if not holder or self.on[holder - 1]:
                self.used[holder] += upto - self.now
            self.now = upto
            when = self.step(closed)


def test_two_have_turns_of_a_tenth_of_a_second(library: ctypes.CDLL) -> None:
    rota = Rota(library, {}, {})
    seen = []
    for _ in range(4):
        when = rota.step()
        seen.append((int(rota.state.holder), rota.state.kind))
        # the first step tells who is on from now on
        assert when - rota.now in (100 * MS,)
        rota.now = when
    assert seen == [(1, TURN), (2, TURN), (1, TURN), (2, TURN)]


def test_weights_are_parts_of_the_time(library: ctypes.CDLL) -> None:
    rota = Rota(library, *({"weight": weight} for weight in (1, 2, 3)), late=MS)
    rota.run(6_000 * MS)
    total = sum(rota.used.values())
    assert [rota.used[i] / total for i in (1, 2, 3)] == [pytest.approx(i / 6, rel=0.03) for i in (1, 2, 3)]


def test_nobody_waits_for_a_second(library: ctypes.CDLL) -> None:
    rota = Rota(library, *({"weight": weight} for weight in (1, 10, 50)))
    last = dict.fromkeys((1, 2, 3), rota.now)
    for _ in range(200):
        when = rota.step()
        holder = int(rota.state.holder)
        assert rota.now - last[holder] < 1000 * MS
        rota.now = when
        last[holder] = when


def test_a_turn_passes_at_once_when_its_holder_wants_nothing(library: ctypes.CDLL) -> None:
    rota = Rota(library, {}, {})
    rota.run(10 * MS)
    assert rota.state.holder == 1
    rota.tenants[0].wants = False
    rota.step()
    assert rota.state.holder == 2
    rota.tenants[1].wants = False
    assert rota.step() == NEVER
    assert (rota.state.holder, rota.state.kind) == (0, NONE)


def test_who_is_alone_goes_on_and_makes_way_for_the_first_who_comes(library: ctypes.CDLL) -> None:
    rota = Rota(library, {}, {"wants": 0})
    rota.run(500 * MS)
    assert rota.used[1] == 500 * MS
    assert rota.step() == NEVER
    rota.tenants[1].wants = True
    rota.step()
    assert rota.state.holder == 2


def test_a_holder_that_is_gone_is_followed_by_the_next(library: ctypes.CDLL) -> None:
    rota = Rota(library, {}, {}, {})
    rota.run(10 * MS)
    rota.tenants[0] = rota.tenants[1]
    rota.tenants[1] = rota.tenants[2]
    rota.state.count = 2
    rota.step()
    assert rota.state.holder in (2, 3)


def sometimes(rota: Rota, tenants: Collection[int], work_ms: int, rest_ms: int, seconds: int) -> int:
    """Some work for so long at a time, of their own time, and then want nothing for a while; for how many ns at
    most tenant 1 did not run."""
    longest, last = 0, rota.now
    left, back = dict.fromkeys(tenants, work_ms * MS), dict.fromkeys(tenants, 0)
    end = rota.now + 1000 * MS * seconds
    while rota.now < end:
        before = dict(rota.used)
        rota.run(MS)
        for key in tenants:
            left[key] -= rota.used[key] - before[key]
            if left[key] <= 0:
                left[key], back[key] = work_ms * MS, rota.now + rest_ms * MS
                rota.tenants[key - 1].wants = False
            elif rota.now >= back[key]:
                rota.tenants[key - 1].wants = True
        last = rota.now if rota.used[1] > before[1] else last
        longest = max(longest, rota.now - last)
    return longest


def test_who_rests_in_its_turn_has_the_rest_of_it_when_it_is_back(library: ctypes.CDLL) -> None:
    """It waited for a whole round after each 10 ms of work, and had 0.05."""
    rota = Rota(library, {}, {}, {}, late=MS)
    sometimes(rota, (3,), 10, 10, 10)
    shares = {key: rota.used[key] / 10_000 / MS for key in (1, 2, 3)}
    assert shares[3] > 0.27
    assert shares[1] == pytest.approx(shares[2], rel=0.05)
    assert shares[1] > 0.27


@pytest.mark.parametrize("count", [2, 3, 5])
def test_those_who_come_back_all_the_time_leave_the_others_their_part(library: ctypes.CDLL, count: int) -> None:
    rota = Rota(library, {}, *[{}] * count)
    longest = sometimes(rota, range(2, count + 2), 2, 1, 10)
    assert longest < 1000 * MS
    assert rota.used[1] / sum(rota.used.values()) > 0.9 / (count + 1)


def test_a_turn_counts_from_when_its_holder_is_on(library: ctypes.CDLL) -> None:
    rota = Rota(library, {}, {}, late=20 * MS)
    rota.run(105 * MS)
    assert rota.state.holder == 1
    rota.run(20 * MS)
    assert rota.state.holder == 2


def test_lower_ranks_have_their_floor_beside_turns(library: ctypes.CDLL) -> None:
    rota = Rota(library, {"rank": 2}, {"rank": 1, "floor": 10})
    rota.run(10_000 * MS)
    assert rota.used[2] / 10_000 / MS == pytest.approx(0.01, abs=0.0011)
    assert rota.used[1] / 10_000 / MS == pytest.approx(0.99, rel=0.01)


@pytest.mark.parametrize("turn_ms", [100, 500, 1000])
@pytest.mark.parametrize("permille", [20, 100, 300, 500])
def test_a_floor_is_kept_however_long_the_turns_of_others_are(
    library: ctypes.CDLL, permille: int, turn_ms: int
) -> None:
    """A window waited for the end of a turn: of 10 % beside one of 900 ms 2 % were left, of 50 % as well."""
    rota = Rota(library, {"rank": 2, "turn": turn_ms * MS}, {"rank": 1, "floor": permille}, late=MS)
    rota.run(20_000 * MS)
    assert rota.used[2] / 20_000 / MS == pytest.approx(permille / 1000, abs=0.0021)


@pytest.mark.parametrize("weights", [(1, 1), (1, 10), (1, 10, 50)])
def test_who_is_interrupted_by_windows_has_its_part_of_the_rest(library: ctypes.CDLL, weights: tuple[int, ...]) -> None:
    rota = Rota(library, *({"rank": 2, "weight": weight} for weight in weights), {"rank": 1, "floor": 300})
    rota.run(20_000 * MS)
    had = [rota.used[i] / 20_000 / MS for i in range(1, len(weights) + 1)]
    assert had == [pytest.approx(0.7 * weight / sum(weights), rel=0.05, abs=0.003) for weight in weights]


@pytest.mark.parametrize("permille", [20, 300, 600])
def test_nobody_waits_for_a_second_for_windows(library: ctypes.CDLL, permille: int) -> None:
    rota = Rota(library, *[{"rank": 2, "turn": 500 * MS}] * 3, {"rank": 1, "floor": permille})
    rota.run(2_000 * MS)
    last = dict.fromkeys((1, 2, 3, 4), rota.now)
    while rota.now < 12_000 * MS:
        rota.run(MS)
        last[int(rota.state.holder)] = rota.now
        assert max(rota.now - since for since in last.values()) < 1000 * MS


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("floors", [(500, 500), (900, 900), (900, 200), (300, 300, 300, 300)])
def test_floors_of_several_ranks_leave_something(library: ctypes.CDLL, floors: tuple[int, ...], closed: bool) -> None:
    """Two classes with half of the time each had all of it, and a server above them one part in 300."""
    top = [{"rank": 9}] if not closed else []
    rota = Rota(library, *top, *({"rank": 8 - i, "floor": floor} for i, floor in enumerate(floors)))
    rota.run(20_000 * MS, closed=closed)
    had = [rota.used[i] / 20_000 / MS for i in range(1 + len(top), 1 + len(top) + len(floors))]
    assert had == [pytest.approx(0.9 * floor / sum(floors), abs=0.005) for floor in floors]
    assert rota.used[1 if top else 0] / 20_000 / MS == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("count", [3, 91, 400])
def test_however_many_divide_a_floor_they_have_no_more_than_it(library: ctypes.CDLL, count: int) -> None:
    """Each had a permille at least: 91 of a class of 2 % had 9 % together, 1000 left nothing to others."""
    rota = Rota(library, {"rank": 2}, *[{"share": 7, "floor": 20}] * count)
    library.rm_rota_divide(rota.tenants, ctypes.c_uint(count + 1))
    rota.run((1_000 + 200 * count) * MS, every=20 * MS)
    before, begin = rota.used[1], rota.now
    rota.run(400 * count * MS, every=20 * MS)
    assert 1 - (rota.used[1] - before) / (rota.now - begin) == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(("count", "permille"), [(20, 20), (91, 20), (20, 200)])
def test_windows_do_not_come_all_in_a_row(library: ctypes.CDLL, count: int, permille: int, closed: bool) -> None:
    """All were due at the same moment: whom they are defended against was off for 80 ms where 20 had one, and more."""
    rota = Rota(library, {"rank": 2}, *[{"share": 7, "floor": permille}] * count)
    library.rm_rota_divide(rota.tenants, ctypes.c_uint(count + 1))
    rota.run(20_000 * MS, closed, every=20 * MS)
    before, last, longest, end = sum(list(rota.used.values())[2:]), rota.now, 0, rota.now + 36_400 * MS
    while rota.now < end:
        when = rota.step(closed)
        if rota.state.kind == WINDOW:
            longest = max(longest, when - last)
        else:
            last = when
        rota.run(min(when, rota.now + 20 * MS) - rota.now, closed)
    # `last` is when somebody else had it last
    assert longest <= 10 * MS + 2
    assert (sum(list(rota.used.values())[2:]) - before) / 36_400 / MS == pytest.approx(permille / 1000, rel=0.15)


@pytest.mark.parametrize("permille", [0, 20, 50, 100])
def test_closed_nobody_has_more_than_the_floor(library: ctypes.CDLL, permille: int) -> None:
    rota = Rota(library, {"floor": permille}, late=MS // 2)
    rota.run(10_000 * MS, closed=True)
    assert rota.used[1] / 10_000 / MS == pytest.approx(permille / 1000, rel=0.05, abs=0.0011 * (permille > 0))
    assert rota.state.kind != TURN


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_those_who_divide_a_floor_have_a_window_each_within_a_second(library: ctypes.CDLL, count: int) -> None:
    rota = Rota(library, *[{"floor": 20 // count}] * count)
    holders = [0]
    last = dict.fromkeys(range(1, count + 1), rota.now)
    waits = []
    while rota.now < 11_000 * MS:
        rota.run(MS, closed=True)
        holder = int(rota.state.holder)
        if holder and holder != holders[-1]:
            waits.append(rota.now - last[holder])
            last[holder] = rota.now
        holders.append(holder)
    assert max(waits) < 1000 * MS
    used = sum(rota.used[each] for each in last) / 10_000 / MS
    assert used == pytest.approx(20 // count * count / 1000, abs=0.0011 * count)  # some are not over


def test_a_window_that_was_too_long_is_paid_for(library: ctypes.CDLL) -> None:
    rota = Rota(library, {"floor": 100})
    while rota.state.kind != WINDOW:
        rota.now = rota.step(closed=True)
    rota.now += 200 * MS  # nobody looked in time
    rota.step(closed=True)
    rota.run(9_800 * MS, closed=True)
    assert (rota.used[1] / MS + 200) / 10_000 == pytest.approx(0.1, abs=0.005)


def test_nobody_starves_for_a_window_that_was_far_too_long(library: ctypes.CDLL) -> None:
    """One slow call of the driver, and at a floor of 0.6 % it had none for more than two minutes."""
    rota = Rota(library, *[{"floor": 6}] * 3)
    while rota.state.kind != WINDOW:
        rota.now = rota.step(closed=True)
    holder = int(rota.state.holder)
    rota.now += 1000 * MS
    rota.step(closed=True)
    begin = rota.now
    rota.run(MS, closed=True)
    while int(rota.state.holder) != holder:
        assert rota.now - begin < 3500 * MS
        rota.run(MS, closed=True)


def test_a_turn_ends_when_it_is_closed_and_a_window_does_not(library: ctypes.CDLL) -> None:
    rota = Rota(library, {"floor": 500})
    rota.run(10 * MS)
    assert rota.state.kind == TURN
    rota.step(closed=True)
    assert rota.state.holder == 0
    rota.run(25 * MS, closed=True)
    assert rota.state.kind == WINDOW
    rota.step(closed=False)
    assert rota.state.holder == 1


def steps() -> st.SearchStrategy[list[tuple[int, int, bool, bool]]]:
    return st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 300), st.booleans(), st.booleans()), min_size=1, max_size=60
    )


@settings(deadline=None)
@given(
    steps(), st.lists(st.integers(1, 3), min_size=4, max_size=4), st.lists(st.sampled_from([0, 20, 900]), min_size=4)
)
def test_the_turn_is_always_with_somebody_who_wants_it(
    library: ctypes.CDLL, acts: list[tuple[int, int, bool, bool]], ranks: list[int], floors: list[int]
) -> None:
    tenants = ({"rank": rank, "floor": floor} for rank, floor in zip(ranks, floors, strict=False))
    rota = Rota(library, *tenants)
    for who, ms, wants, closed in acts:
        rota.tenants[who].wants = wants
        rota.run(ms * MS, closed)
        rota.step(closed)
        wanting = [each for each in rota.tenants if each.wants]
        if rota.state.holder:
            holder = rota.tenants[int(rota.state.holder) - 1]
            assert holder.wants
            assert rota.state.kind == WINDOW or (not closed and holder.rank == max(each.rank for each in wanting))
        else:
            assert closed or not wanting


@settings(deadline=None)
@given(steps())
def test_whatever_came_before_each_who_wants_it_has_its_turn(
    library: ctypes.CDLL, acts: list[tuple[int, int, bool, bool]]
) -> None:
    rota = Rota(library, {}, {}, {}, {})
    for who, ms, wants, closed in acts:
        rota.tenants[who].wants = wants
        rota.run(ms * MS, closed)
    for each in rota.tenants:
        each.wants = True
    before = dict(rota.used)
    rota.run(1000 * MS)
    assert all(rota.used[key] - before[key] > 0 for key in (1, 2, 3, 4)), rota.used


def test_who_comes_back_as_a_turn_ends_has_no_other_one_for_ever(library: ctypes.CDLL) -> None:
    """It was let through with the rest of its turn, and went on after that as if nobody waited."""
    rota = Rota(library, {}, {})
    rota.run(10 * MS)
    rota.tenants[0].wants = False
    rota.run(99 * MS)
    assert (rota.state.holder, rota.state.left) == (2, MS)
    rota.tenants[0].wants = True
    rota.now += MS
    rota.step()
    assert rota.state.holder == 1
    before = dict(rota.used)
    rota.run(990 * MS)
    assert all(rota.used[key] - before[key] >= 400 * MS for key in (1, 2)), rota.used


def test_who_was_on_for_longer_than_its_turn_has_a_shorter_one_next(library: ctypes.CDLL) -> None:
    rota = Rota(library, {}, {})
    rota.run(101 * MS)
    assert rota.state.holder == 2
    rota.on[0] = True  # the driver has not put it off yet
    rota.now += 10 * MS
    rota.step()
    rota.run(100 * MS)
    assert rota.state.holder == 1
    assert 70 * MS < rota.state.left <= 90 * MS


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), min_size=60, max_size=60))
def test_shares_hold_however_late_it_is_looked(library: ctypes.CDLL, late: list[int]) -> None:
    """What a look that comes late gives one of them is taken off its next turns: nobody is ahead by more than one."""
    rota = Rota(library, {}, {})
    when = rota.step()
    for ms in late:
        rota.used[int(rota.state.holder)] += when + ms * MS - rota.now
        rota.now = when + ms * MS
        when = rota.step()
        ahead = [rota.used[each.key] - each.over for each in rota.tenants]
        if any(each.over >= 900 * MS for each in rota.tenants):
            return  # the rest is forgiven
        assert abs(ahead[0] - ahead[1]) <= 100 * MS


def test_who_runs_while_nobody_waits_pays_for_nothing(library: ctypes.CDLL) -> None:
    rota = Rota(library, {}, {"wants": 0})
    rota.tenants[0].over = 300 * MS  # from when somebody waited
    rota.run(500 * MS)
    rota.now += 3_000 * MS  # nothing is to be decided, so nobody looks
    rota.tenants[1].wants = True
    rota.step()
    assert rota.tenants[0].over == 0
