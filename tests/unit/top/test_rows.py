# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from top_fakes import GPU, program, snapshot, tsg

from detshare.ctl.top.columns import columns
from detshare.ctl.top.draw import Painter
from detshare.ctl.top.keys import View
from detshare.ctl.top.rows import gpu_rows, ordered, rows, select, sorts
from detshare.ctl.top.values import bar, clean, memory, microseconds


def cells(**more: Any) -> dict[str, str]:
    (row,) = rows(snapshot(program(**more)))
    return dict(row.cells)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0us"), (50, "50us"), (999, "999us"), (1000, "1ms"),
        (2048, "2.05ms"), (2500, "2.5ms"), (20_000, "20ms"), (999_400, "999ms"),
        (999_600, "1s"), (1_000_000, "1s"), (2**40, ">9999s"), (2**64 - 1, ">9999s"), (-1, "-"),
        (None, "-"), ("x", "-"), (True, "-"), (float("nan"), "-"),
    ],
)  # fmt: skip
def test_microseconds(us: object, text: str) -> None:
    assert microseconds(us) == text
    assert len(text) <= 6


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (512, "512B"), (1 << 20, "1M"), (3 << 29, "1.5G"), (80 << 30, "80G"), (1023 << 20, "1G"),
     (2 << 40, "2T"), (None, "-"), (-5, "-"), ("1", "-")],
)  # fmt: skip
def test_memory(size: object, text: str) -> None:
    assert memory(size) == text


def test_cells_of_a_whole_program() -> None:
    found = cells(**{"class": "high"}, tsgs=[tsg(1_000_000, "high"), tsg(1024, None, kind="copy")])
    expected = {"PID": "4242", "GPU": "0", "CLASS": "high", "SLICE": "1s", "LEVEL": "high", "MEM": "3G",
                "SHARE": "25%", "STATE": "running", "USER": "alice", "COMMAND": "python3 serve.py",
                "TSGS": "1"}  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_slices_that_differ_are_mixed_and_a_weight_stands_in_for_a_class() -> None:
    found = cells(tsgs=[tsg(50, "low"), tsg(2048, "high")], weight=10)
    assert (found["SLICE"], found["LEVEL"], found["CLASS"]) == ("mixed", "mixed", "w 10")


def test_what_cannot_be_read_is_a_dash() -> None:
    (row,) = rows(snapshot({"pid": 7}))
    assert row.pid == 7
    assert {value for name, value in row.cells.items() if name != "PID"} == {"-"}


def test_sorting_puts_the_unknown_last() -> None:
    found = rows(
        snapshot(
            program(3, gpu_share=None, memory_bytes=5, **{"class": "idle"}),
            program(2, gpu_share=0.1, memory_bytes=None, **{"class": None}),
            program(1, gpu_share=0.9, memory_bytes=9, **{"class": "high"}),
        )
    )
    assert [r.pid for r in ordered(found, "share")] == [1, 2, 3]
    assert [r.pid for r in ordered(found, "memory")] == [1, 3, 2]
    assert [r.pid for r in ordered(found, "pid")] == [1, 2, 3]
    assert [r.pid for r in ordered(found, "class")] == [1, 3, 2]


def test_filter_looks_into_what_a_person_knows_a_program_by() -> None:
    found = rows(
        snapshot(
            program(10, command="python3 train.py", user="bob"),
            program(11, container="ab" * 32, state="paused", **{"class": "low"}),
        )
    )
    for text, pids in [("TRAIN", [10]), ("bob", [10]), ("11", [11]), ("ababab", [11]), ("paused", [11]),
                       ("low", [11]), ("nothing", []), (" ", [10, 11])]:  # fmt: skip
        assert [r.pid for r in select(found, text)] == pids, text


def test_gpu_header_adds_up_only_what_is_known() -> None:
    (gpu,) = gpu_rows(snapshot(program(1), program(2), program(3, state="no-context", tsgs=[], memory_bytes=None)))
    assert (gpu.index, gpu.uuid, gpu.memory) == ("0", "GPU-710ea6b1", "6G/80G")
    (gpu,) = gpu_rows(snapshot(program(1), program(2, memory_bytes=None)))
    assert gpu.memory == "-/80G"
    (gpu,) = gpu_rows(snapshot(program(1, gpus=[GPU, "GPU-2"])))
    assert gpu.memory == "-/80G"


def test_gpu_header_knows_what_a_program_has_on_each_gpu() -> None:
    second = {"uuid": "GPU-2", "minor": 1, "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}
    both = program(1, gpus=[GPU, "GPU-2"], gpu_memory={GPU: 3 << 30, "GPU-2": 1 << 30}, memory_bytes=4 << 30)
    elsewhere = program(2, gpu_memory={GPU: 1 << 30, "GPU-2": 1 << 29})
    seen = snapshot(both, elsewhere, program(3))
    assert [gpu.memory for gpu in gpu_rows({**seen, "gpus": [*seen["gpus"], second]})] == ["7G/80G", "1.5G/80G"]


def test_a_program_cannot_send_control_codes_to_the_terminal() -> None:
    assert clean("a\x1b[31mb\x07\n\u202ec\udcff") == "a?[31mb? ?c?"


def test_bar() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(1.7, 4) == "████"
    assert bar(None, 4) == bar(0.0, 4) == "    "
    assert bar(0.5, 4, ascii_only=True) == "##  "


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(sorted({*program(), "gpus", "programs", "gpu_time", "places", "gpu_memory", "floor"}))


@given(
    st.dictionaries(FIELDS, JSON, max_size=8),
    st.dictionaries(st.sampled_from(sorted(tsg())), JSON, max_size=6),
    st.dictionaries(st.sampled_from(sorted({*snapshot(), "schedules"})), JSON, max_size=4),
)
def test_no_snapshot_makes_a_frame_fail(broken: dict[str, Any], group: dict[str, Any], above: dict[str, Any]) -> None:
    whole = {**snapshot({**program(), "tsgs": [{**tsg(), **group}], **broken}), **above}
    view = View(details=True, selected=(4242, 100))
    for width in (20, 80, 160):
        assert all(line.cell_len <= width for line in Painter(width, 24).frame(whole, view))


def test_programs_of_several_gpus_are_told_by_gpu() -> None:
    seen = snapshot(
        program(1, gpus=[GPU, "GPU-2"], gpu_share=0.1),
        program(2, gpus=["GPU-2"], gpu_share=0.9),
        program(3, gpu_share=0.5),
        program(4, gpus=[], tsgs=[], gpu_share=None),
    )
    seen["gpus"].append({"uuid": "GPU-2", "minor": 11, "name": "NVIDIA H200", "memory_bytes": 140 << 30})
    found = rows(seen)
    assert [row.pid for row in ordered(found, "gpu")] == [3, 1, 2, 4]
    assert {text: [row.pid for row in select(found, text)] for text in ("gpu 0", "GPU11", "gpu 1")} == {
        "gpu 0": [1, 3], "GPU11": [1, 2], "gpu 1": [],
    }  # fmt: skip
    assert sorts(found)[-1] == "gpu"
    assert "gpu" not in sorts(found[2:])
    narrow = columns(80, limits=True, counts=True, turns=True, gpus=True)
    assert [column.name for column in narrow][1] == "GPU"
    assert narrow[-1].width >= 12
