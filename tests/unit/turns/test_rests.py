# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from detshare.ctl.backends.root.turns.rests import Rests

EVERY_S = 0.02
QUESTION_S = 0.0009
SEES_S = 0.0002
"""a rest that begins so soon after it was asked counts"""


def share(rests_at: Callable[[float], bool], seconds: float = 20.0) -> float:
    """Of the answers those that say that it rested, with questions that take time."""
    rests, now, answers = Rests(EVERY_S), 0.0, []

    def ask() -> bool:
        nonlocal now
        found = rests_at(now) or rests_at(now + SEES_S)
        now += QUESTION_S
        return found

    while now < seconds:
        answers += rests.look("GPU-0", now, ask)
        now += max(0.0003, min(0.01, rests.wait(now)))
    return sum(answer is True for answer in answers) / len(answers)


def server(work_ms: float, period_ms: float) -> Callable[[float], bool]:
    return lambda at: 1000 * at % period_ms >= work_ms


@pytest.mark.parametrize(
    ("work_ms", "period_ms", "least", "most"),
    [
        (1.4, 1.45, 0.0, 0.1),  # back to back
        (1.35, 1.6, 0.0, 0.1),
        (1.4, 2.025, 0.0, 0.1),
        (0.6, 0.85, 0.0, 0.13),  # small kernels
        (1.4, 20.0, 0.75, 0.95),  # a burst now and then
        (1.4, 20.7, 0.75, 0.95),
        (14.0, 20.0, 0.15, 0.25),  # rests of 6 ms
        (14.0, 20.3, 0.15, 0.25),
        (0.0, 1.0, 1.0, 1.0),
    ],
)
def test_short_gaps_are_no_rests(work_ms: float, period_ms: float, least: float, most: float) -> None:
    assert least <= share(server(work_ms, period_ms)) <= most


def test_what_the_driver_does_not_say_is_said_so() -> None:
    assert Rests(EVERY_S).look("GPU-0", 1.0, lambda: None) == (None,)


def test_it_is_asked_so_often_and_no_more() -> None:
    rests = Rests(EVERY_S)
    assert rests.wait(1.0) == float("inf")
    assert rests.look("GPU-0", 1.0, lambda: False) == (False,)
    assert rests.look("GPU-0", 1.0 + EVERY_S / 3, lambda: False) == ()
    assert EVERY_S / 2 < rests.wait(1.0) < 1.5 * EVERY_S
    assert rests.look("GPU-0", 1.0 + 2 * EVERY_S, lambda: True) == ()
    assert rests.wait(1.0 + 2 * EVERY_S) < 0.001
    rests.drop("GPU-0")
    assert rests.wait(1.0) == float("inf")
