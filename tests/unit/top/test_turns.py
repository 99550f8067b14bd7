# SPDX-License-Identifier: Apache-2.0
"""What the screen says of turns, histories and programs without progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detshare.ctl.core import words
from detshare.ctl.core.gputime import Standing
from detshare.ctl.top.columns import BARS, columns
from detshare.ctl.top.draw import Painter
from detshare.ctl.top.keys import View
from tests.unit.gputime.gpu_times import STALLED, TIME, program, snapshot

ROTATION = snapshot(
    program(1, Standing.HOLDS),
    program(2, Standing.WAITS, gpu_time=(replace(TIME, share=0.2),)),
    program(3, Standing.RESTS, gpu_time=(replace(STALLED, stalled_s=0.0),)),
).to_json()


def frame(shown: dict[str, object], width: int = 100, view: View | None = None, height: int = 30) -> list[str]:
    return [line.plain for line in Painter(width, height).frame(shown, view or View(sort="pid"))]


@pytest.mark.parametrize("width", [80, 100, 150])
def test_the_list_says_who_holds_the_turn_and_when_the_next_comes(width: int) -> None:
    lines = frame(ROTATION, width)
    assert lines[2].startswith("GPU  0  turns, train has its turn for 40ms, then eval, foreground in bursts")
    head, first, second, third = lines[4:8]
    assert "TURN" in head
    assert "LATELY" in head
    assert " 30% " in first
    assert "holds" in first
    assert "in 140ms" in second
    assert "rests" in third
    drawn = words.spark(TIME.history, 17 if width >= 130 else 10)
    assert drawn in first
    assert drawn not in third


@pytest.mark.parametrize("width", [40, 71, 72, 80, 129, 130, 200])
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("lately", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_each_title_stands_above_its_column(width: int, turns: bool, lately: bool, counts: bool) -> None:
    chosen = columns(width, counts=counts, turns=turns, lately=lately)
    assert ("TURN" in [column.name for column in chosen]) == turns
    shown = snapshot(*([program(1, Standing.HOLDS if turns else None, gpu_time=(TIME,) if lately else ())])).to_json()
    if counts:
        shown["programs"][0]["pctx"] = "25%"
    lines = frame(shown, width)
    at = next(number for number, line in enumerate(lines) if " PID" in line)
    head, row = lines[at], lines[at + 1].ljust(width)
    edge = 1
    for column in chosen[:-1]:
        title, cell = head[edge : edge + column.width], row[edge : edge + column.width]
        assert head[edge - 1] == " "
        assert column.name in BARS | {"USE"} or column.name.startswith(title.strip())
        if column.right and title.strip() and cell.strip():
            assert title[-1] != " "
            assert cell[-1] != " "
        edge += column.width + 1


def test_who_makes_no_progress_is_said_and_marked() -> None:
    shown = snapshot(program(1, Standing.WAITS, gpu_time=(STALLED,)), program(2)).to_json()
    assert sum("stalled" in line for line in frame(shown, 120)) == 1
    lines = frame(shown, 120, View(details=True, selected=(1, 100)))
    assert any("it has work on GPU 0 and made no progress for 3.2s" in line for line in lines)


def test_details_tell_times_places_and_why_the_gpu_rotates_so() -> None:
    shown = snapshot(program(2, Standing.WAITS, floor=0.02)).to_json()
    lines = frame(shown, 150, View(details=True, selected=(2, 100)))
    for wanted in (
        "GPU 0: 30.0% of the last 5.0s (27.0% useful), 50 runs a second of 1.73 ms, 18.3 ms between them",
        f"lately [{words.spark(TIME.history, 50)}]",
        "GPU 0: waits for its turn; its next begins in 140ms",
        "floor 2.0% of the time",
        "GPU 0 rotates so because gaps of 18.3 ms are 61 switches long",
    ):
        assert any(wanted in line for line in lines), wanted
