# SPDX-License-Identifier: Apache-2.0
"""No action of any policy names what is not there, fills an exclusive member twice, or starves anybody."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import snapshot, view

from detshare.ctl.policy.guard import LEAST_OPEN, LONGEST_SHUT_US, LONGEST_SLICE_US, Guard
from detshare.ctl.policy.types import Bind, ClassRow, Gate, Move, PCtx, Preempt, Reflex, Slice

POOL = (PCtx("all", 132), PCtx("big", 64, exclusive=True), PCtx("small", 16, exclusive=True))
NAMES = ("1", "2", "3", "4")
LANES = {"1": "temporal", "2": "temporal", "3": "spatial", "4": "spatial"}


def world(now_us: float = 0.0, bound: dict[str, str] | None = None):
    bound = bound or {}
    pool = tuple(replace(m, bound=tuple(t for t, where in bound.items() if where == m.name)) for m in POOL)
    tenants = [view(name, lane=LANES[name], active=True, pctx=bound.get(name, "")) for name in NAMES]
    return snapshot(*tenants, now_us=now_us, pool=pool)


ONE = view("1", active=True)
numbers = st.one_of(
    st.integers(-10, 10**10), st.floats(), st.none(), st.booleans(), st.text(max_size=3), st.just([1]), st.just(10**40)
)
names = st.one_of(st.sampled_from([*NAMES, "5", "", "all", "big", "small", "none"]), numbers)
actions = st.one_of(
    st.builds(Bind, names, numbers),
    st.builds(Move, names, names),
    st.builds(Slice, names, numbers, numbers),
    st.builds(Gate, names, st.one_of(st.booleans(), numbers)),
    st.builds(Preempt, names),
    st.builds(Reflex, names, numbers),
    st.builds(ClassRow, st.one_of(st.sampled_from(["high", "low", "mine"]), numbers), *[numbers] * 5),
    numbers,
    st.just(object()),
)
good = st.one_of(
    st.builds(Bind, st.sampled_from(NAMES), st.integers(1, 132)),
    st.builds(Move, st.sampled_from(NAMES), st.sampled_from(["all", "big", "small"])),
    st.builds(Slice, st.sampled_from(NAMES), st.floats(1, 1e6), st.integers(0, 2)),
    st.builds(Gate, st.sampled_from(NAMES), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(actions, good), max_size=12))
def test_whatever_is_let_through_can_be_meant(several):
    guard = Guard()
    now = world()
    for action in several:
        if guard.check(action, now) is not None:
            continue
        if isinstance(action, ClassRow):
            assert isinstance(action.klass, str)
            assert action.floor_permille is None or 0 <= action.floor_permille <= 1000
            continue
        tenant = now.tenant(action.tenant)
        assert tenant is not None
        match action:
            case Bind(sms=sms):
                assert tenant.lane == "spatial"
                assert type(sms) is int
                assert 1 <= sms <= now.sms
            case Slice(slice_us=slice_us, level=level):
                assert tenant.lane == "temporal"
                assert math.isfinite(slice_us)
                assert 1 <= slice_us <= LONGEST_SLICE_US
                assert level in (0, 1, 2)
            case Move(pctx=pctx):
                assert now.member(pctx) is not None
            case Reflex(busy_sms=busy):
                assert busy is None or 0 <= busy <= now.sms
            case Gate(open=is_open):
                assert type(is_open) is bool


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds(Move, st.sampled_from(NAMES), st.sampled_from(["all", "big", "small"])),
            st.just("look"),
        ),
        max_size=40,
    )
)
def test_an_exclusive_member_has_one_tenant_at_most(steps):
    guard = Guard()
    bound: dict[str, str] = {}
    now = world(bound=bound)
    for step in steps:
        if step == "look":
            now = world(bound=bound)
            guard.see(now)
        elif guard.check(step, now) is None:
            bound[step.tenant] = step.pctx
        for member in POOL:
            if member.exclusive:
                assert sum(where == member.name for where in bound.values()) <= 1


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3_000_000), st.booleans()), min_size=1, max_size=100))
def test_a_gate_is_never_shut_for_long_nor_nearly_always(steps):
    guard = Guard()
    now_us, shut_since = 0.0, None
    shut_total = open_total = 0.0
    for pause, is_open in steps:
        # the engine opens on time: it sleeps no longer than until next_due()
        target = now_us + pause
        while (due := guard.next_due()) <= target:
            assert shut_since is not None
            shut_total += due - now_us
            now_us = due
            assert guard.overdue(now_us) == ["1"]
            assert now_us - shut_since <= LONGEST_SHUT_US
            shut_since = None
        if shut_since is None:
            open_total += target - now_us
        else:
            shut_total += target - now_us
        now_us = target
        if guard.check(Gate("1", is_open), snapshot(ONE, now_us=now_us)) is None:
            if is_open:
                shut_since = None
            elif shut_since is None:
                shut_since = now_us
        assert (shut_since is not None) == ("1" in guard.shut)
        assert shut_since is None or now_us - shut_since <= LONGEST_SHUT_US
    # each time it was shut, but for the present one, was followed by its share of open time
    present = 0.0 if shut_since is None else now_us - shut_since
    assert open_total >= LEAST_OPEN * (shut_total - present - LONGEST_SHUT_US) - 1.0


def test_a_gate_may_be_shut_again_after_its_share_of_open_time():
    guard = Guard()
    assert guard.check(Gate("1", False), world(0)) is None
    assert guard.overdue(LONGEST_SHUT_US - 1) == []
    assert guard.overdue(LONGEST_SHUT_US) == ["1"]
    rest = LEAST_OPEN * LONGEST_SHUT_US
    assert "stay open" in (guard.check(Gate("1", False), world(LONGEST_SHUT_US + rest - 1)) or "")
    assert guard.check(Gate("1", False), world(LONGEST_SHUT_US + rest)) is None


def test_a_class_that_is_given_turns_keeps_a_floor():
    guard = Guard()
    assert guard.check(ClassRow("high", turn_us=50_000, floor_permille=0), world()) is None
    assert guard.check(ClassRow("low", turn_us=50_000), world()) is None, "its standing floor is 20 permille"
    assert "starve" in (guard.check(ClassRow("low", floor_permille=5), world()) or "")
    assert "starve" in (guard.check(ClassRow("batch", turn_us=50_000), world()) or "")
    assert guard.check(ClassRow("batch", turn_us=50_000, floor_permille=10), world()) is None


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Slice("9", 100.0), "no tenant '9'"),
        (Move("3", "gone"), "no pool member 'gone'"),
        (Bind("1", 8), "spatial lane"),
        (Slice("3", 100.0), "temporal lane"),
        (Preempt("3"), "temporal lane"),
        (Slice("1", float("nan")), "slice_us is nan"),
        (Slice("1", 100.0, reason="x" * 501), "longer than 500"),
        (Bind("3", True), "sms is True"),
        ("Slice", "str is no action"),
    ],
)
def test_a_refusal_says_why(action, why):
    assert why in (Guard().check(action, world()) or "")


def test_what_a_person_decided_is_not_a_policys():
    now = snapshot(view("1", by_hand=("Gate", "Slice")))
    for action in (Slice("1", 100.0), Gate("1", False), Gate("1", True)):
        assert "a person decided" in (Guard().check(action, now) or "")
    assert Guard().check(Preempt("1"), now) is None


def test_what_could_not_be_done_does_not_count():
    guard = Guard()
    guard.check(Gate("1", False), world(0))
    guard.undone(Gate("1", False))
    assert guard.shut == frozenset()
    assert guard.check(Move("3", "big"), world()) is None
    guard.undone(Move("3", "big"))
    assert guard.check(Move("4", "big"), world()) is None


@given(st.floats(0, 1e15))
def test_a_gate_is_due_just_when_it_says_so(now_us):
    guard = Guard()
    assert guard.check(Gate("1", False), snapshot(ONE, now_us=now_us)) is None
    assert guard.overdue(guard.next_due()) == ["1"]
