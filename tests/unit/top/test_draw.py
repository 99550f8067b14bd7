# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from top_fakes import program, snapshot, tsg

from detshare.ctl.top.draw import Painter
from detshare.ctl.top.keys import View

CROWD = [
    program(1_234_567, command="python3 " + "推理" * 60, user="a-user-of-long-name", container="0a" * 32,
            state="not-understood", **{"class": "normal"}, tsgs=[tsg(999_000, "medium")], gpu_share=1.0,
            notes=["a note " * 40]),
    *(program(pid, command=f"job {pid} " + "x" * 300) for pid in range(1, 60)),
]  # fmt: skip


def text(width: int, height: int | None, view: View | None = None, *programs: object, **more: object) -> list[str]:
    shown = snapshot(*(programs or CROWD))  # type: ignore[arg-type]
    return [line.plain for line in Painter(width, height).frame(shown, view or View(), **more)]  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [10, 40, 71, 72, 80, 129, 130, 160, 300])
@pytest.mark.parametrize("height", [1, 6, 24, 50, None])
@pytest.mark.parametrize("details", [False, True])
def test_no_line_is_wider_and_no_frame_higher_than_the_screen(width: int, height: int | None, details: bool) -> None:
    view = View(details=details, selected=(1_234_567, 100), message="long " * 200)
    lines = Painter(width, height).frame(snapshot(*CROWD), view, error="failed " * 100)
    assert all(line.cell_len <= width for line in lines)
    assert not any("\n" in line.plain for line in lines)
    assert len(lines) == height if height is not None else len(lines) > len(CROWD)


def test_80_columns_show_every_field_that_the_issue_names() -> None:
    lines = text(80, 24, None, program(**{"class": "high"}, tsgs=[tsg(1_000_000, "high")]))
    assert lines[0] == "detshare-top  driver 580.159.04  backend root  proof gpu  1 program"
    assert lines[1] == "GPU  0  NVIDIA H100 80GB HBM3  GPU-710ea6b1  mem 3G/80G"
    assert lines[3].split() == ["PID", "GPU", "CLASS", "SLICE", "LEVEL", "MEM", "SHARE", "STATE", "COMMAND"]
    assert lines[4].split() == [
        "4242",
        "0",
        "high",
        "1s",
        "high",
        "3G",
        "25%",
        "running",
        "python3",
        "serve.py",
    ]
    assert all(word in lines[-1] for word in ("quit", "sort", "filter", "class", "weight", "pause", "release", "help"))


def test_wide_adds_user_container_and_a_bar() -> None:
    lines = text(160, 24, None, program(container="0a" * 32, gpu_share=0.5))
    assert "████████ " in lines[4]
    assert {"alice", "0a0a0a0a0a0a"} <= set(lines[4].split())


def test_a_model_is_labelled_on_the_first_line() -> None:
    (title, *_) = Painter(80, 24).frame(snapshot(backend="model", proof="model"), View())
    assert "proof model" in title.plain
    assert any("magenta" in str(span.style) for span in title.spans)


def test_the_selected_row_is_always_in_sight() -> None:
    view = View(sort="pid")
    for pid in (1, 59, 30):
        view.selected = (pid, 100)
        marked = [line for line in text(80, 12, view) if line.startswith(">")]
        assert len(marked) == 1
        assert f"job {pid} " in marked[0]


def test_details_name_groups_channels_and_what_was_before() -> None:
    view = View(details=True, selected=(4242, 100))
    lines = "\n".join(text(160, 30, view, program(notes=["seen late"], tsgs=[tsg(50, "low", before_us=2048)])))
    for words in (
        "TSG 0x5c000015",
        "8 channels",
        "slice 50us (before DetShare 2.05ms)",
        "level low",
        "note: seen late",
    ):
        assert words in lines


def test_states_without_programs_and_without_a_look() -> None:
    nothing = [line.plain for line in Painter(80, 10).frame(snapshot(), View())]
    assert any("no program uses a GPU" in line for line in nothing)
    first = [line.plain for line in Painter(80, 10).frame(None, View(), error="no root")]
    assert any("no look: no root" in line for line in first)
    assert any("looking" in line for line in first)


def test_read_only_says_that_changes_need_the_daemon() -> None:
    assert "need detshared" in text(80, 24, None, program(), can_act=False)[-1]


def test_an_old_frame_tells_its_age() -> None:
    assert "12 s old" in text(80, 24, None, program(), age=12.3)[0]


def test_once_has_no_cursor_no_keys_and_every_program() -> None:
    lines = text(80, None)
    assert not any(line.startswith(">") or "quit" in line for line in lines)
    assert sum("running" in line for line in lines) == 59


def test_help_lists_every_key() -> None:
    lines = "\n".join(text(80, 24, View(help=True)))
    for key in ("s ", "/", "1 2 3 4", "w ", "p ", "r ", "d, enter", "q "):
        assert f"  {key}" in lines
