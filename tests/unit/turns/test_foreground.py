# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from detshare.ctl.backends.root.turns.foreground import (
    AGREE,
    BLIND_S,
    BRIEF_LOOK_S,
    BRIEF_S,
    LEARNED_S,
    LOOK_S,
    RESTS,
    SAMPLES,
    SPAN_S,
    STREAM_S,
    TRY_S,
    Foreground,
)
from detshare.ctl.backends.root.turns.pattern import Sight, judge, see
from detshare.ctl.core.classes import BURST_US, STREAM_US
from detshare.ctl.core.gputime import Pattern, Run

MS = 1_000_000
LC, BG = 10, 20


def alternate(piece_ms: float, gap_ms: float, seconds: float = 0.5, *, alike: bool = True) -> Sight:
    """The foreground's pieces and the background's gaps in turn, a switch of 85 us between."""
    runs, at, end = [], 0, round(seconds * 1e9)
    factors = itertools.cycle((1.0,) if alike else (0.5, 1.0, 1.4))
    while at < end:
        for pid, length in ((LC, next(factors) * piece_ms), (BG, gap_ms)):
            runs.append(Run(pid, at, at + round(length * MS)))
            at += round(length * MS) + 85_000
    return see(runs, {BG}, 0, end)


@pytest.mark.parametrize(
    ("piece_ms", "gap_ms", "pattern", "slice_us"),
    [
        (1.73, 18.1, Pattern.BURSTS, 50),  # a graph every 20 ms
        (1.40, 0.15, Pattern.FULL, 50),  # the same, back to back
        (1.67, 0.25, Pattern.FULL, 50),  # every 2 ms
        (1.40, 0.54, Pattern.BURSTS, 50),  # every 2.025: the background has a fifth, a request waits for one switch
        (0.60, 0.25, Pattern.FULL, 50),  # small kernels without rest
        (2.8, 7.0, Pattern.BURSTS, 50),  # decode every 10 ms
        (0.45, 2.15, Pattern.STREAM, 2000),  # eager decode
        (0.15, 0.15, Pattern.STREAM, 50),
        (0.52, 3.93, Pattern.BURSTS, 50),  # a graph 220 times a second
        (0.52, 4.70, Pattern.BURSTS, 2000),
        (0.12, 0.33, Pattern.FULL, 50),  # a graph 7300 times a second, as often as it is let
        (0.12, 2.32, Pattern.BURSTS, 2000),
        (0.84, 2.36, Pattern.BURSTS, 2000),  # a graph 600 times a second
        (0.84, 0.42, Pattern.BURSTS, 50),
    ],
)
def test_what_was_seen_on_an_h200(piece_ms: float, gap_ms: float, pattern: Pattern, slice_us: int) -> None:
    """Graphs are requests, one like the other; of an eager program no two pieces are."""
    sight = alternate(piece_ms, gap_ms, alike=pattern is not Pattern.STREAM)
    if pattern is Pattern.STREAM and piece_ms == gap_ms:
        assert sight.share < 0.5
    assert judge(sight, slice_us=slice_us)[0] is pattern


def test_who_follows_a_stream_is_seen_beside_a_short_slice() -> None:
    found = Foreground()
    for n in range(AGREE):
        found.saw(alternate(0.15, 0.15, alike=False), n * 0.25)
    assert found.slice_us == STREAM_US
    found.recast(1.0)
    assert found.slice_us == BURST_US
    assert list(found.spans_s(1.2)) == [BRIEF_S]


def hasty() -> Foreground:
    """Requests that wait for the background each time."""
    found = Foreground()
    for n in range(AGREE):
        found.saw(alternate(0.12, 0.33, BRIEF_S), n * BRIEF_LOOK_S)
    assert found.full
    return found


def test_hasty_requests_are_at_rest_if_none_came_after_a_window() -> None:
    found = hasty()
    found.follow([], [Run(LC, 1, 2)], {BG})  # the last to run behind the window
    for _ in range(2 * SAMPLES):
        found.asked(True, 1.0, floor=0.02)
    assert found.full, "the driver sees a rest between any two of them"
    found.follow([], [Run(BG, 3, 4)], {BG})
    for _ in range(RESTS):
        found.asked(True, 1.0, floor=0.02)
    assert not found.full


def test_hasty_requests_are_given_the_gpu_back_soon_when_turns_are_tried() -> None:
    """Without a floor there are no windows, so all that is there is to try, ever less often."""
    found, at, asked = hasty(), 0.05, []
    found.follow([], [Run(LC, 1, 2)], {BG})
    for _ in range(9):
        begun = at
        while found.full:
            at += 0.02
            found.asked(True, at)
        asked.append(round((at - begun) / 0.02))
        at += found.look_s
        assert not list(found.spans_s(at))
        at += found.look_s
        for span_s in found.spans_s(at):
            found.saw(alternate(0.12, 0.33, span_s), at)
        assert found.full
    assert asked[0] == RESTS
    assert asked == sorted(asked)
    assert asked[-1] >= 4 * SAMPLES


def test_nobody_in_front() -> None:
    assert judge(see([Run(BG, 0, 400 * MS)], {BG}, 0, 500 * MS))[0] is Pattern.NONE


def full() -> Foreground:
    found = Foreground()
    for n in range(AGREE):
        found.saw(alternate(1.4, 0.15), n * 0.25)
    assert found.full
    assert found.pattern is Pattern.FULL
    return found


def test_one_look_decides_nothing() -> None:
    found = Foreground()
    found.saw(alternate(1.4, 0.15), 0.0)
    assert not found.full


def test_whoever_ran_last_and_rests_is_not_full() -> None:
    found = Foreground()
    for n in range(5):
        found.saw(alternate(1.4, 0.15), n * 0.25, rests=True)
    assert not found.full


def test_windows_end_when_it_rests_often_enough() -> None:
    found = full()
    for n in range(SAMPLES):
        found.asked(n % 8 == 7, 1.0)
    assert found.full
    for n in range(SAMPLES):
        found.asked(n % 4 == 3, 2.0)
    assert not found.full


def test_who_comes_back_is_asked_more_often_but_not_where_it_is_another_one() -> None:
    found = full()
    for back in range(1, 4):
        for _ in range(SAMPLES * 2**back):
            found.asked(False, 1.0)
        for n in range(SAMPLES * 2 ** (back - 1)):
            assert found.full
            found.asked(n % 4 == 3, 1.0)
        assert not found.full
        for n in range(AGREE):
            found.saw(alternate(1.4, 0.15), 1.2 + n * 0.25)
        assert found.full
    for _ in range(RESTS):
        assert found.full
        found.asked(True, 2.0)
    assert not found.full


def test_turns_are_tried_again_after_a_while() -> None:
    found = full()
    found.asked(False, found.changed_at + TRY_S / 2)
    assert found.full
    found.asked(False, found.changed_at + TRY_S)
    assert not found.full


def brief(found: Foreground, piece_ms: float, begun: float, rests: bool = False, *, alike: bool = True) -> float:
    """Half a second of it in brief looks; when the last one was."""
    at = begun
    while not found.full and at < begun + SPAN_S - BRIEF_LOOK_S:
        at += BRIEF_LOOK_S
        for span_s in found.spans_s(at):
            assert span_s == BRIEF_S
            found.saw(alternate(piece_ms, 0.15, span_s, alike=alike), at, rests)
    return at


def test_requests_without_gaps_are_seen_soon_also_when_turns_are_tried_again() -> None:
    found = Foreground(changed_at=1.0)
    assert brief(found, 1.4, 1.0) < 1.2
    assert found.full
    begun = found.changed_at + TRY_S
    found.asked(False, begun)
    assert not found.full
    assert found.look_s < BRIEF_LOOK_S
    assert brief(found, 1.4, begun) < begun + 0.11
    assert found.full
    assert found.look_s == BRIEF_LOOK_S


@pytest.mark.parametrize(("piece_ms", "rests"), [(6.0, False), (0.4, False), (1.4, True)])
def test_so_short_a_time_says_nothing_else(piece_ms: float, rests: bool) -> None:
    """Not of pieces of which it holds a few, or of small kernels, nor of who had the GPU last and rests."""
    found = Foreground(changed_at=1.0)
    brief(found, piece_ms, 1.0, rests, alike=rests)
    assert (found.full, found.pattern) == (False, Pattern.NONE)
    assert list(found.spans_s(1.0 + SPAN_S)) == [SPAN_S, BRIEF_S]
    assert list(found.spans_s(1.0 + SPAN_S + LOOK_S / 2)) == [BRIEF_S]


def test_windows_end_soon_where_it_rests_for_long() -> None:
    found = full()
    for _ in range(RESTS):
        assert found.full
        found.asked(True, 1.0)
    assert not found.full


def test_other_programs_have_to_be_asked_no_more_often_for_what_the_last_did() -> None:
    found = full()
    for n in range(SAMPLES):
        found.asked(n % 4 == 3, 1.0)
    for n in range(AGREE):
        found.saw(alternate(1.4, 0.15), 1.2 + n * 0.25)
    found.recast(1.9)
    for n in range(SAMPLES):
        assert found.full
        found.asked(n % 4 == 3, 2.0)
    assert not found.full


def test_windows_end_for_a_try_where_the_driver_says_nothing() -> None:
    found = full()
    found.asked(None, found.changed_at + BLIND_S / 2)
    assert found.full
    found.asked(None, found.changed_at + BLIND_S)
    assert not found.full


@pytest.mark.parametrize(
    ("piece_ms", "gap_ms", "answered"),
    [
        (0.45, 2.155, False),  # an eager decode that had 0.125 beside 50 us
        (0.23, 0.775, False),  # the same, where its background rests before its slice ends
        (0.19, 2.155, False),  # a slower one
        (0.14, 2.155, True),
        (0.13, 0.30, False),  # it waits no longer than before
    ],
)
def test_what_an_h200_showed_of_streams(piece_ms: float, gap_ms: float, answered: bool) -> None:
    found = Foreground()
    for n in range(AGREE):
        found.saw(alternate(0.125, 0.155, alike=False), 0.25 * n, slice_us=BURST_US)
    assert found.pattern is Pattern.STREAM
    for n in range(AGREE):
        found.saw(alternate(piece_ms, gap_ms, alike=False), 1 + 0.25 * n, slice_us=STREAM_US)
    assert found.pattern is (Pattern.BURSTS if answered else Pattern.STREAM)
    for n in range(AGREE):
        found.saw(alternate(0.125, 0.155, alike=False), 2 + 0.25 * n, slice_us=BURST_US)
    assert found.full is answered


def stream() -> Foreground:
    found = Foreground()
    for n in range(AGREE):
        found.saw(alternate(0.125, 0.155, alike=False), 0.25 * n)
    assert found.pattern is Pattern.STREAM
    return found


@pytest.mark.parametrize("alike", [True, False])
def test_who_does_more_than_a_stream_had_to_do_is_another_one(alike: bool) -> None:
    found = stream()
    for n in range(AGREE):
        found.saw(alternate(9.276, 2.165, alike=alike), 1 + 0.25 * n, slice_us=STREAM_US)
    assert found.pattern is Pattern.BURSTS


def test_requests_that_came_in_place_of_a_stream_do_not_wait_for_long_slices_for_ever() -> None:
    """Each does as much beside 2 ms as the stream did."""
    found, now = stream(), 0.25
    while found.pattern is Pattern.STREAM and now < 2 * STREAM_S:
        now += LOOK_S
        found.saw(alternate(0.271, 1.2), now, slice_us=STREAM_US)
    assert now < 1.1 * STREAM_S
    for n in range(AGREE):
        found.saw(alternate(0.271, 0.86), now + LOOK_S * n)
    assert found.pattern is Pattern.BURSTS


def test_it_is_learned_again_where_it_has_bursts() -> None:
    """A stream that came in place of requests that wait for answers, and rests now and then."""
    found = stream()
    for n in range(AGREE):
        found.saw(alternate(0.13, 2.155, alike=False), 1 + LOOK_S * n, slice_us=STREAM_US)
    seen = set()
    for n in range(round((LEARNED_S + 2) / LOOK_S)):
        found.saw(replace(alternate(0.125, 0.155, alike=False), long_gap_ns=MS), 2 + LOOK_S * n)
        seen.add(found.pattern)
    assert seen == {Pattern.BURSTS, Pattern.STREAM}


def test_what_was_learned_of_a_foreground_is_learned_again() -> None:
    found = Foreground()
    for n, (piece, gap, slice_us) in enumerate([(0.125, 0.155, 50)] * 2 + [(0.13, 2.155, 2000)] * 2):
        found.saw(alternate(piece, gap, alike=False), 0.25 * n, slice_us=slice_us)
    for now in range(2, int(LEARNED_S + 2 * TRY_S)):
        for n in range(AGREE):
            found.saw(alternate(0.125, 0.155, alike=False), now + 0.25 * n)
        for n in range(4):
            found.asked(False, now + 0.6 + 0.1 * n)
    assert found.pattern is Pattern.STREAM
