# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core.gputime import Run
from detshare.ctl.gputime import drawing
from tests.unit.gputime.recordings import busy, recording

SPACE = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(picture).iter(f"{SPACE}text")]


def test_ten_seconds_of_three_thousand_switches_are_a_picture_below_a_megabyte() -> None:
    pids = list(range(100, 140))
    picture = drawing.svg(recording(busy(10.0, 3000, pids), 10.0, {pid: f"python job{pid}.py" for pid in pids}))
    assert len(picture.encode()) < 1_000_000
    assert "other programs" in texts(picture)


def test_a_lane_for_each_program_with_its_share_an_axis_and_a_legend() -> None:
    picture = drawing.svg(recording(busy(1.0, 100, [7, 8]), 1.0, {7: "/usr/bin/python <serve> & \x1b[31m.py"}))
    told = texts(picture)
    assert "python <serve> & ?[31m.py (7)" in told
    assert "PID 8" in told
    assert "49.6%, 50/s of 9.91 ms" in told
    assert {"0", "0.1", "1", "s", "switches"} <= set(told)
    assert any("context is restored" in each for each in told)
    assert "proof level unit" in told[0]
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")  # nothing is fetched
    assert "prefers-color-scheme: dark" in picture


def test_a_part_is_drawn_with_its_own_times() -> None:
    told = texts(drawing.svg(recording(busy(1.0, 100, [7, 8]), 1.0), begin_s=0.5, length_s=0.02))
    assert "500" in told
    assert "520" in told
    assert "0" not in told


def test_lost_records_are_said() -> None:
    assert "3 records were lost" in texts(drawing.svg(recording([], 1.0, dropped=3)))


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1.0])
def test_nothing_is_a_picture_too(seconds: float) -> None:
    assert "switches" in texts(drawing.svg(recording([], seconds)))


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 400)), max_size=30), st.integers(1, 5000), st.integers(1, 60)
)
def test_columns_add_up_to_the_time_of_the_runs(gaps: list[tuple[int, int]], length: int, count: int) -> None:
    now, runs = 0, []
    for gap, run in gaps:
        runs.append(Run(1, now + gap, now + gap + run))
        now += gap + run
    found = drawing.shares(runs, 0, length, count)
    inside = sum(max(min(run.end_ns, length) - run.start_ns, 0) for run in runs)
    assert len(found) == count
    assert all(0 <= share <= 1 for share in found)
    assert math.isclose(sum(found) * length / count, inside, rel_tol=1e-9, abs_tol=1e-6)


def test_what_is_hardly_there_is_seen() -> None:
    assert drawing.skyline([0.0, 0.001, 1.0, 1.0, 0.0, 0.5], 100) == (
        f"M{drawing.LEFT + 1} 100V99H{drawing.LEFT + 2}V70H{drawing.LEFT + 4}V100Z"
        f"M{drawing.LEFT + 5} 100V85H{drawing.LEFT + 6}V100Z"
    )
    assert drawing.skyline([0.0] * 5, 100) == ""


@given(st.integers(1, 10**12))
def test_an_axis_has_few_marks_at_round_times(length: int) -> None:
    marks, divisor, unit = drawing.ticks(length)
    assert 2 <= len(marks) <= 11 or length == 1
    assert marks[0] == 0
    assert marks[-1] <= length
    assert all(re.fullmatch(r"\d{1,4}(\.\d{1,2})?", f"{mark / divisor:.6g}") for mark in marks), (marks, unit)
