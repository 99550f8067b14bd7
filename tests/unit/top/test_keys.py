# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import pytest
from top_fakes import program, snapshot

from detshare.ctl.top.keys import Decoder, Verb, View, handle, pin
from detshare.ctl.top.rows import Row, rows

FOUND = rows(snapshot(program(1), program(2, command="train", state="paused"), program(3)))


def press(view: View, keys: Sequence[str], found: list[Row] | None = None, can_act: bool = True) -> list[Verb]:
    given = FOUND if found is None else found
    pin(view, given)
    verbs = [handle(view, key, given, can_act) for key in keys]
    return [verb for verb in verbs if verb is not None]


@pytest.mark.parametrize(
    ("keys", "verb"),
    [
        ("1", Verb("set-priority", "1", {"class": "high"})),
        ("2", Verb("set-priority", "1", {"class": "normal"})),
        ("j3", Verb("set-priority", "2", {"class": "low"})),
        ("jj4", Verb("set-priority", "3", {"class": "idle"})),
        ("p", Verb("pause", "1")),
        ("jp", Verb("resume", "2")),
        ("r", Verb("release", "1")),
        (["w", "1", "0", "enter"], Verb("set-weight", "1", {"weight": 10})),
        (["w", "9", "backspace", "3", "enter"], Verb("set-weight", "1", {"weight": 3})),
        (["down", "down", "down", "up", "p"], Verb("resume", "2")),
        (["end", "p"], Verb("pause", "3")),
        (["/", "t", "r", "a", "enter", "r"], Verb("release", "2")),
    ],
)
def test_keys_become_verbs(keys: Sequence[str], verb: Verb) -> None:
    assert press(View(), keys) == [verb]


@pytest.mark.parametrize("typed", ["0", "1001", "", "x", "-1", "99999999999", "1.5", "٣"])
def test_a_bad_weight_changes_nothing_and_says_why(typed: str) -> None:
    view = View()
    assert press(view, ["w", *typed, "enter"]) == []
    assert view.bad
    assert "1 to 1000" in view.message
    assert view.mode == "list"


def test_esc_leaves_the_weight_prompt() -> None:
    view = View()
    assert press(view, ["w", "5", "esc"]) == []
    assert (view.mode, view.message) == ("list", "")


@pytest.mark.parametrize("key", ["1", "2", "3", "4", "w", "p", "r"])
def test_without_a_daemon_keys_that_change_say_what_is_needed(key: str) -> None:
    view = View()
    assert press(view, [key], can_act=False) == []
    assert "detshared" in view.message
    assert view.mode == "list"


def test_a_key_never_acts_on_the_program_that_took_the_place_of_one_that_ended() -> None:
    view = View()
    press(view, "j")
    left = [row for row in FOUND if row.pid != 2]
    for keys in ("1", "p", "r", "w"):
        assert press(view, keys, left) == []
        assert "select another" in view.message
    reused = rows(snapshot(program(1), program(2, start=999), program(3)))
    assert press(view, "1", reused) == []
    assert press(view, "j1", reused) == [Verb("set-priority", "1", {"class": "high"})]


def test_a_program_that_ends_while_its_weight_is_typed() -> None:
    view = View()
    press(view, ["j", "w", "5"])
    assert press(view, ["enter"], [row for row in FOUND if row.pid != 2]) == []
    assert view.bad


def test_sort_cycles_and_filter_is_dropped_by_esc() -> None:
    view = View()
    seen = [view.sort]
    for _ in range(4):
        press(view, "s")
        seen.append(view.sort)
    assert seen == ["share", "memory", "pid", "class", "share"]
    press(view, ["/", "q", "1"])
    assert (view.filter, view.quit, view.mode) == ("q1", False, "filter")
    press(view, ["esc"])
    assert (view.filter, view.mode) == ("", "list")


def test_toggles() -> None:
    view = View()
    press(view, "d")
    assert view.details
    press(view, "?")
    assert view.help
    assert press(view, "1") == []
    assert not view.help
    assert press(view, "q1") == []
    assert view.quit


def test_no_programs_at_all() -> None:
    view = View()
    assert press(view, ["up", "down", "1", "p", "w", "r", "d", "s"], []) == []


def test_decoder() -> None:
    assert Decoder().feed(b"j\x1b[A\x1bOB\x1b[5~\r\x7f\x1b[99~k") == [
        "j", "up", "down", "pageup", "enter", "backspace", "k"]  # fmt: skip
    assert Decoder().feed("é推".encode()) == ["é", "推"]
    assert Decoder().feed(b"\x1bq") == ["esc", "q"]


def test_decoder_takes_sequences_in_pieces_and_escape_alone() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.waiting
    assert decoder.feed(b"[") == []
    assert decoder.feed(b"B") == ["down"]
    assert not decoder.waiting
    assert decoder.feed(b"\x1b") == []
    assert decoder.flush() == ["esc"]
    assert decoder.flush() == []
