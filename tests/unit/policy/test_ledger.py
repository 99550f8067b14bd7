# SPDX-License-Identifier: Apache-2.0
"""Who decided what is kept over restarts, and what a person did shows whoever kept it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import GPU, activity, program

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Level, State
from detshare.ctl.policy.ledger import Ledger, Put
from detshare.ctl.policy.types import Bind, Gate, Move, Reflex, Slice

ONE = ProcessId(1, 10)
KEPT = ("chosen", "configured", "puts", "rows", "hand", "hand_rows", "deadlines", "resumed")

processes = st.builds(ProcessId, st.integers(1, 5), st.integers(1, 3))
actions = st.sampled_from([Slice("1", 300.0, 0), Bind("1", 16), Move("1", "10%"), Gate("1", False), Reflex("1", None)])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), processes, actions, st.one_of(st.none(), actions)),
            st.tuples(st.just("taken"), processes, st.sampled_from(["Slice", "Gate"])),
            st.tuples(st.just("released"), processes),
            st.tuples(st.just("give_back"), processes),
        ),
        max_size=20,
    )
)
def test_what_was_saved_is_loaded(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("ledger") / "policy.json"
    made = Ledger(path, chosen=("fair", {"unit_ms": "2"}), configured="x", hand_rows={"low"})
    made.deadlines[ONE] = 20_000.0
    made.rows["low"] = [{"reset": True}]
    made.touch()
    for what, process, *rest in steps:
        match what:
            case "put":
                action, before = rest
                made.put(process, type(action).__name__, Put(GPU, action, before))
            case "taken":
                made.taken(process, rest)
            case _:
                getattr(made, what)(process)
    made.save()
    again = Ledger(path)
    assert again.load() == ""
    assert {name: getattr(again, name) for name in KEPT} == {name: getattr(made, name) for name in KEPT}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{}",
        b'{"chosen": 3}',
        b'{"chosen": []}',
        b'{"chosen": null, "configured": "", "puts": [[1e999, 2, "Slice", "GPU", {"do": "Gate"}, null]]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"chosen": null, "configured": ""}',
    ],
)
def test_a_file_that_is_none_is_left_aside(tmp_path: Path, text: bytes):
    path = tmp_path / "policy.json"
    path.write_bytes(text)
    made = Ledger(path)
    assert str(path) in made.load()
    assert (made.chosen, made.puts, made.hand) == (None, {}, {})
    made.taken(ONE, ["Slice"])
    made.save()
    assert Ledger(path).load() == ""


def test_the_first_before_is_the_one_that_is_brought_back():
    made = Ledger()
    made.put(ONE, "Slice", Put(GPU, Slice("1", 300.0), Slice("1", 2048.0)))
    made.put(ONE, "Slice", Put(GPU, Slice("1", 200.0), Slice("1", 300.0)))
    assert made.puts[ONE, "Slice"].before == Slice("1", 2048.0)


def spatial(**changes):
    made = program(1, lane="spatial", klass="normal")
    return replace(made, spatial=replace(made.spatial, **changes))


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        (program(1), ()),
        (program(1, klass="low"), ("Slice",)),
        (program(1, weight=3), ("Slice",)),
        (replace(program(1), tsgs=tuple(replace(t, level=Level.HIGH) for t in program(1).tsgs)), ("Slice",)),
        (replace(program(1), state=State.PAUSED), ("Gate",)),
        (replace(program(1), state=State.GATED, activity=activity("gated", reasons=("turn",))), ()),
        (replace(program(1), state=State.GATED, activity=activity("gated", reasons=("order",))), ("Gate",)),
        (spatial(), ()),
        (spatial(percent=50), ("Bind", "Move")),
        (spatial(exclusive="mine"), ("Bind", "Move")),
        (spatial(held=True), ("Gate",)),
    ],
)
def test_what_a_person_decided_shows_in_the_program(seen, kinds):
    made = Ledger()
    assert made.kinds(seen) == kinds
    for kind in kinds:
        made.put(seen.id, kind, Put(GPU, Slice("1", 300.0), None))
    assert made.kinds(seen) == (), "the policy set it"
    for kind in kinds:
        made.taken(seen.id, [kind])
    assert made.kinds(seen) == kinds
    made.give_back(seen.id)
    assert made.kinds(seen) == ()


def test_who_ended_is_forgotten():
    made = Ledger()
    made.taken(ONE, ["Slice"])
    made.deadlines[ONE] = 1.0
    made.only([ProcessId(1, 11)])
    assert (made.hand, made.deadlines) == ({}, {})


def test_a_look_from_before_something_was_put_back_shows_nobodys_decision():
    seen = replace(program(1), tsgs=tuple(replace(t, level=Level.HIGH) for t in program(1).tsgs))
    made = Ledger()
    made.settling[seen.id, "Slice"] = 5.0
    assert made.kinds(seen) == ()
    made.settle(4.9)
    assert made.kinds(seen) == ()
    before = made.version
    made.settle(5.0)
    assert made.kinds(seen) == ("Slice",), "who sees it now sees a person's"
    assert made.version != before, "views are made anew"
    made.settling[seen.id, "Slice"] = 9.0
    made.taken(seen.id, ["Slice"])
    assert made.kinds(seen) == ("Slice",), "a person said so meanwhile"
    made.only([])
    assert made.settling == {}
