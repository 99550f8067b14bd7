# SPDX-License-Identifier: Apache-2.0
"""What a look sums up is what its words say, by plain means."""

from __future__ import annotations

import random
from itertools import groupby
from statistics import fmean, median, quantiles

import pytest

from detshare.ctl.backends.root.turns.pattern import CUT_NS, see
from detshare.ctl.core.gputime import Run
from detshare.ctl.gputime.meter import useful_ns


@pytest.mark.parametrize("seed", range(60))
def test_a_sight_is_what_its_words_say(seed: int) -> None:
    dice = random.Random(seed)
    runs, now = [], 1_000_000
    for _ in range(seed):
        length = dice.choice((dice.randrange(1, 400_000), dice.randrange(1, 9_000_000)))
        runs.append(Run(dice.choice((7, 8, 9)), now, now + length))
        now += length + dice.choice((0, 85_000))
    whole = [(mine, list(some)) for mine, some in groupby(runs, lambda run: run.pid != 7)]
    lengths = [(mine, sum(run.end_ns - run.start_ns for run in some)) for mine, some in whole]
    gaps, pieces = ([length for mine, length in lengths if mine is side] for side in (True, False))
    sight, span = see(runs, {8, 9}, 1_000_000, now), max(1, now - 1_000_000)
    assert sight.share == pytest.approx(sum(pieces) / span)
    assert sight.pieces_s == pytest.approx(len(pieces) * 1e9 / span)
    assert sight.piece_ns == (median(pieces) if pieces else 0)
    assert sight.gap_ns == (median(gaps) if gaps else 0)
    assert sight.long_gap_ns == (quantiles(gaps, n=20)[-1] if len(gaps) > 1 else 0)
    assert sight.useful == pytest.approx(sum(useful_ns(run) for run in runs if run.pid != 7) / span)
    assert sight.dense == pytest.approx(1 - sum(gap for gap in gaps if gap > CUT_NS) / span)
    quarter = len(pieces) // 4
    assert sight.middle_ns == pytest.approx(fmean(sorted(pieces)[quarter : len(pieces) - quarter]) if pieces else 0)


@pytest.mark.parametrize(("wide", "alike"), [(0.019, True), (0.021, False)])
def test_pieces_are_alike_by_their_middle_half(wide: float, alike: bool) -> None:
    dice, now, runs = random.Random(1), 0, []
    for number in range(99):
        part = dice.choice((0.2, 5)) if number % 3 == 0 else 1 + wide * (number % 2)
        for pid, length in ((7, round(1_000_000 * part)), (8, 300_000)):
            runs.append(Run(pid, now, now + length))
            now += length
    pieces = [run.end_ns - run.start_ns for run in runs if run.pid == 7]
    low, middle, high = quantiles(pieces, n=4)
    assert (high - low <= 0.02 * middle) is alike
    assert see(runs, {8}, 0, now).alike is alike
