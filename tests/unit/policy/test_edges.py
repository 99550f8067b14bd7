# SPDX-License-Identifier: Apache-2.0
"""Very many events become few edges: the newest of each tenant, none too often, none lost for good."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ctl.policy.edges import GAP_S, MOST_S, Edges


def drive(edges: Edges, now: float, state: dict[str, bool]) -> list[tuple[str, bool, float]]:
    """Take what may be told, and tell what is news, as the engine does."""
    told = []
    for name, active, since in edges.take(now):
        if state.get(name, False) != active:
            state[name] = active
            edges.told(name, active, now)
            told.append((name, active, since))
    return told


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 0.05), st.booleans()),
        max_size=200,
    )
)
def test_the_newest_is_told_in_the_end_and_none_sooner_than_its_gap(steps):
    edges, now, state = Edges(), 100.0, {}
    newest: dict[str, bool] = {}
    last: dict[tuple[str, bool], float] = {}
    for name, active, pause, take in steps:
        now += pause
        edges.hear(name, active, now)
        newest[name] = active
        if take:
            for who, what, since in drive(edges, now, state):
                assert now - last.get((who, what), -math.inf) >= GAP_S
                assert since <= now
                last[who, what] = now
    for _ in range(20):
        now += GAP_S
        drive(edges, now, state)
    assert {name: state.get(name, False) for name in newest} == newest
    assert edges.next_due == math.inf


def test_a_thousand_that_flap_make_no_more_hooks_than_can_be_worked_off():
    edges, state, told, seconds = Edges(), {}, 0, 5
    names = [str(number) for number in range(1000)]
    for tick in range(seconds * 100):
        now = tick / 100
        for name in names:
            edges.hear(name, tick % 2 == 0, now)
        told += len(drive(edges, now, state))
    assert told / seconds < 3 * MOST_S
    assert set(state) == set(names), "each was told of"


def test_who_waits_is_told_what_is_newest_then():
    edges, state = Edges(), {}
    edges.hear("a", True, 0.0)
    assert drive(edges, 0.0, state) == [("a", True, 0.0)]
    edges.hear("a", False, 0.01)
    assert drive(edges, 0.01, state) == [("a", False, 0.01)]
    edges.hear("a", True, 0.02)
    assert drive(edges, 0.02, state) == []
    due = edges.next_due
    assert GAP_S <= due <= 1.25 * GAP_S
    edges.hear("a", False, 0.03)
    assert drive(edges, due, state) == [], "it was over by then"
    edges.hear("a", True, 0.5)
    assert drive(edges, 0.5, state) == [("a", True, 0.5)]


def test_who_went_is_forgotten():
    edges, state = Edges(), {}
    for now, active in ((0.0, True), (0.01, False), (0.02, True)):
        edges.hear("a", active, now)
        drive(edges, now, state)
    edges.forget("a")
    assert drive(edges, 1.0, state) == []
