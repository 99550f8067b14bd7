# SPDX-License-Identifier: Apache-2.0
"""What is shown of lanes, pCtxs, rates and decisions, and the keys for them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from top_fakes import RATES, counted, decision, program, snapshot, spatial

from detshare.ctl.top.draw import Painter
from detshare.ctl.top.keys import Verb, View, handle, pin
from detshare.ctl.top.rows import Row, ordered, rows, sorts

POLICY = {"name": "strict", "failed": ""}


def lines(width: int, height: int | None, *programs: dict[str, object], **more: object) -> list[str]:
    return [line.plain for line in Painter(width, height).frame(snapshot(*programs, **more), View())]


def press(view: View, keys: Sequence[str], found: list[Row]) -> list[Verb]:
    pin(view, found)
    return [verb for key in keys if (verb := handle(view, key, found, True)) is not None]


def test_80_columns_show_lane_pctx_memory_rates_and_what_was_held() -> None:
    shown = lines(80, 24, counted(**{"class": "high"}))
    head = shown[3].split()
    assert head == ["PID", "CLASS", "LANE", "PCTX", "SM", "MEM", "L/S", "Q99", "HELD", "STATE", "COMMAND"]
    assert shown[4].split() == [
        "4242", "high", "spat", "25%", "█▎", "3G/4G", "45k", "8.19ms", "12%", "spatial", "python3", "se…",
    ]  # fmt: skip


def test_a_wide_screen_has_bars_for_sms_and_for_memory() -> None:
    (line,) = (line for line in lines(160, 24, counted()) if "4242" in line)
    for words in ("alice", "spatial ", "██▍", "3G     4G ██████  ", "45k", "8.19ms", "12%", "25%", "python3 serve.py"):
        assert words in line, words


def test_what_nobody_counts_takes_no_column() -> None:
    assert "LANE" not in lines(80, 24, program())[3]
    assert "SLICE" in lines(80, 24, program())[3]


def test_a_ceiling_is_the_share_of_the_temporal_lane() -> None:
    doing = {"state": "active", "reasons": [], "ceiling": 40}
    (row,) = rows(snapshot(program(activity=doing)))
    assert (row.cells["LANE"], row.cells["PCTX"], row.sms) == ("temporal", "40%", 0.4)


def test_beside_a_higher_class_the_bar_is_what_it_has_then() -> None:
    (row,) = rows(snapshot(program(spatial=spatial(waiting=True, busy_sms=16))))
    assert row.sms == pytest.approx(16 / 132)


def test_sorting_by_what_is_counted() -> None:
    found = rows(
        snapshot(
            counted(1, start=1),
            {**counted(2), "rates": {"launches_per_s": 9.0, "held": 0.9, "queue_p99_us": 1.0}},
            program(3),
        )
    )
    assert [row.pid for row in ordered(found, "launches")] == [1, 2, 3]
    assert [row.pid for row in ordered(found, "held")] == [2, 1, 3]
    assert [row.pid for row in ordered(found, "delay")] == [1, 2, 3]
    assert sorts(found) == ("share", "memory", "pid", "class", "launches", "delay", "held")
    assert sorts(found[2:]) == ("share", "memory", "pid", "class")


@pytest.mark.parametrize(
    ("keys", "verb"),
    [
        (["m", *"1.5G", "enter"], Verb("set-memory", "4242", {"limit": "1.5G"})),
        (["m", *"max", "enter"], Verb("set-memory", "4242", {"limit": "max"})),
        (["x", *"25", "enter"], Verb("set-sm", "4242", {"percent": 25})),
        (["j", "x", *"25", "enter"], Verb("set-ceiling", "4300", {"percent": 25})),
        (["o"], Verb("hold", "4242", {})),
        (["P", *"fair unit_ms=40", "enter"], Verb("policy-set", "*", {"name": "fair", "params": {"unit_ms": "40"}})),
    ],
)  # fmt: skip
def test_keys_for_lanes_memory_and_policy(keys: Sequence[str], verb: Verb) -> None:
    found = rows(snapshot(counted(), program(4300)))
    assert press(View(), keys, found) == [verb]


def test_what_is_held_by_hand_goes_on_with_the_same_key() -> None:
    held = rows(snapshot(counted(4242) | {"spatial": spatial(held=True)}))
    assert press(View(), ["o"], held) == [Verb("resume", "4242", {})]
    # a class that is held for a moment is not held by hand
    waits = rows(snapshot(program(activity={"state": "gated", "reasons": ["turn"]})))
    assert press(View(), ["o"], waits) == [Verb("hold", "4242", {})]
    ordered_ = rows(snapshot(program(activity={"state": "gated", "reasons": ["order"]})))
    assert press(View(), ["o"], ordered_) == [Verb("resume", "4242", {})]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["m", *"much"], "no size"), (["m", *"0"], "would refuse all memory"), (["m"], "no size"),
        (["x", *"101"], "1 to 100"), (["x", *"0"], "1 to 100"), (["P", *"strict low"], "key=value"),
        (["P", *"strict =1"], "key=value"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_changes_nothing(keys: Sequence[str], why: str) -> None:
    view = View()
    assert press(view, [*keys, "enter"], rows(snapshot(counted()))) == []
    assert view.bad
    assert why in view.message
    assert "nothing was changed" in view.message


def test_an_empty_policy_is_no_change_and_no_complaint() -> None:
    view = View()
    assert press(view, ["P", "enter"], rows(snapshot(counted()))) == []
    assert (view.mode, view.message) == ("list", "")


def test_the_ticker_shows_the_newest_decisions_above_the_keys() -> None:
    made = [decision(f"4242: number {n}", when=1.7e9 + n) for n in range(9)]
    low = lines(80, 24, counted(), decisions=made, policy=POLICY)
    assert low[-2].startswith("policy strict: ")
    assert low[-2].endswith("4242: number 8")
    assert time.strftime("%H:%M:%S", time.localtime(1.7e9 + 8)) in low[-2]
    high = lines(80, 40, counted(), decisions=made, policy=POLICY)
    assert [line[-8:] for line in high[-5:-1]] == ["number 8", "number 7", "number 6", "number 5"]


def test_a_policy_that_failed_is_told_first() -> None:
    found = lines(80, 40, counted(), decisions=[decision("x")], policy={"name": "mine", "failed": "it slept"})
    assert any(line == "policy mine FAILED: it slept" for line in found)


def test_without_a_policy_there_is_no_ticker() -> None:
    assert not any("policy" in line for line in lines(80, 24, counted())[:-1])


def test_decisions_of_programs_that_ended_are_dim() -> None:
    frame = Painter(80, 24).frame(snapshot(counted(), decisions=[decision("gone", 7)], policy=POLICY), View())
    assert str(frame[-2].style) == "dim"


def test_texts_of_a_policy_cannot_reach_the_terminal_as_control_codes() -> None:
    found = lines(80, 24, counted(), decisions=[decision("a\x1b[2Jb")], policy=POLICY)
    assert not any("\x1b" in line for line in found)


def test_the_fake_has_all_that_rates_give() -> None:
    assert set(RATES) == {"launches_per_s", "held", "queue_p99_us", "door_p99_us"}
