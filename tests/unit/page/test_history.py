# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.daemon.page.history import BRIEF, LEVELS, SECONDS, Series, Shares, level


def time(*shares: float) -> GpuTime:
    """So much of each of the last seconds, the newest last."""
    slots = tuple(share for share in shares for _ in range(10))
    return GpuTime("GPU-0", 5.0, sum(shares) / len(shares), 0.0, 1.0, 1.0, 1.0, slots)


def test_a_value_of_each_second_is_kept_and_one_that_was_missed_is_none() -> None:
    series = Series()
    series.add(1.0, 0)
    series.add(2.0, 0)  # the same second again
    series.add(3.0, 1)
    series.add(None, 1)
    series.add(4.0, BRIEF + 1)
    assert series.to_json() == [2.0, 3.0, None, *[None] * BRIEF, 4.0]


def test_what_is_missed_briefly_is_taken_to_be_as_it_is_now() -> None:
    series = Series()
    series.add(1.0, 0)
    series.add(2.0, 3)
    assert series.to_json() == [1.0, 2.0, 2.0, 2.0]


def test_no_history_is_longer_than_it_may_be() -> None:
    series, shares = Series(), Shares()
    for _ in range(SECONDS + 7):
        series.add(1.0, 1)
        shares.add(0.5, None, 1)
    assert len(series.to_json()) == len(shares.text) == SECONDS
    series.add(2.0, 10 * SECONDS)
    shares.add(1.0, None, 10 * SECONDS)
    assert series.to_json() == [None] * (SECONDS - 1) + [2.0]
    assert shares.to_json() == [None] * (SECONDS - 1) + [1.0]


def test_a_program_comes_with_what_the_meter_remembers_of_it() -> None:
    shares = Shares()
    assert shares.add(0.9, time(0.2, 0.4, 0.0, 1.0), 0) == LEVELS
    assert shares.to_json() == [0.2, 0.4, 0.0, 1.0]


def test_seconds_that_nobody_looked_are_filled_as_far_as_the_meter_remembers() -> None:
    shares = Shares()
    shares.add(0.0, None, 0)
    shares.add(0.0, time(0.2, 0.4, 0.6, 0.8, 1.0), 10)
    assert shares.to_json() == [0.0, None, None, None, None, None, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_a_share_is_a_character_that_json_does_not_escape() -> None:
    shares = Shares()
    for step in range(LEVELS + 1):
        shares.add(step / LEVELS, None, 1)
    assert len(set(shares.text)) == LEVELS + 1
    assert not set(shares.text) & set('"\\ ')
    assert shares.text.isprintable()
    assert shares.text.isascii()
    assert (level(-1.0), level(2.0)) == (0, LEVELS)
