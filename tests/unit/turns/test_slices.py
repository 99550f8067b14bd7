# SPDX-License-Identifier: Apache-2.0
"""Slices that turns set between looks: they are never taken for a program's own, and a program's own never for them."""

from __future__ import annotations

import pytest
from turns_stage import Stage, background

from detshare.ctl.backends.model.gpu import DEFAULT_SLICE_US, ModelTsg


def working(stage: Stage, name: str) -> ModelTsg:
    """The TSG in which a program computes."""
    pid = stage.programs[name][0].id.pid
    return next(t for t in stage.gpu.tsgs if t.pid == pid and t.runlist == 0)


def play(stage: Stage, seconds: float) -> None:
    for _ in range(round(seconds / 0.25)):
        stage.backend.look()
        stage.run(0.25)


@pytest.mark.parametrize("before", ["idle", "weight"])
@pytest.mark.parametrize("end", ["release", "close"])
def test_what_turns_changed_is_put_back_as_it_was_found(stage: Stage, before: str, end: str) -> None:
    """The slice of `idle` was taken for its own when turns had set another: it kept 20 us, in which nothing runs."""
    who = stage.start("a", background(1))
    if before == "weight":
        stage.backend.set_weight(who, 3)
    stage.backend.look()
    stage.backend.set_priority(who, "idle")
    stage.run(0.1)
    play(stage, 1.5)
    assert working(stage, "a").slice_us != DEFAULT_SLICE_US["compute"]
    if end == "release":
        stage.backend.release(who)
    else:
        stage.backend.close()
    assert working(stage, "a").slice_us == DEFAULT_SLICE_US["compute"]


def test_a_weighted_one_is_put_back_after_turns_behind_one_at_high(stage: Stage) -> None:
    who = stage.start("a", background(1))
    stage.backend.set_weight(who, 3)
    play(stage, 0.5)
    high = stage.start("high", background(2))
    stage.backend.set_priority(high, "high")
    play(stage, 1.5)
    stage.backend.release(high)
    play(stage, 1.5)
    assert working(stage, "a").slice_us == 6000
    stage.backend.release(who)
    assert working(stage, "a").slice_us == DEFAULT_SLICE_US["compute"]


@pytest.mark.parametrize("slice_us", [700, 20_000])
def test_who_sets_its_own_slice_in_its_turn_has_the_turns_one_again(stage: Stage, slice_us: int) -> None:
    """One of those that turns give, too: it was taken for theirs, and stayed."""
    stage.backend.set_priority(stage.start("a", background(1)), "low")
    play(stage, 1)
    tsg = working(stage, "a")
    ours = tsg.slice_us
    stage.gpu.set_slice(tsg, slice_us)
    play(stage, 1.5)
    assert tsg.slice_us == ours != slice_us
