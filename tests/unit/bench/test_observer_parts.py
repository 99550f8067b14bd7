# SPDX-License-Identifier: Apache-2.0
"""Measurements of observers on a GPU: their rows can miss, and a part that fails or hangs takes nothing along."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from detshare.tools import results
from detshare.tools.bench.ebpf import dirty, experiment, objects, overhead, root
from detshare.tools.bench.ebpf.part import Line, Part, PartError
from tests.patience import until

TOP = Path(__file__).resolve().parents[3]


def missed(rows: list[results.Row]) -> list[str]:
    return [row.what for row in rows if row.ok is False]


COMPARED: Line = {
    "event": "compared", "what": "a token", "calls": 9, "births": 3, "freed": 1, "births_differ": 0, "frees_differ": 0,
    "deaths_differ": 0, "lost": 0,
}  # fmt: skip
STORMED: Line = {
    "event": "storm", "kind": "child", "objects": 101, "made": 210, "counted": 210, "rate": 60_000.0, "born": 101,
    "died": 101, "lost": 0,
}  # fmt: skip
FORCED: Line = {"event": "forced", "kind": "child", "lost": 200, "kept": 12, "apart": 0, "told": True}


@pytest.mark.parametrize(
    ("line", "wrong", "what"),
    [
        (COMPARED, {"births_differ": 1}, "births (client, handle, class, parent) that only one of the two has"),
        (COMPARED, {"frees_differ": 1}, "such deaths that only one of the two has"),
        (COMPARED, {"deaths_differ": 2}, "deaths in all that only one of the two has"),
        (COMPARED, {"lost": 1}, "events lost"),
        (COMPARED, {"calls": 0}, "RM calls that the recorder inside it saw"),
        (STORMED, {"counted": 209}, "calls told of"),
        (STORMED, {"counted": 211}, "calls told of that nobody made"),
        (STORMED, {"born": 100}, "births told of"),
        (STORMED, {"died": 102}, "deaths told of"),
        (STORMED, {"lost": 3}, "events lost"),
        (STORMED, {"rate": 49_999.0}, "fastest storm, RM calls a second"),
        (FORCED, {"lost": 0}, "a ring of one page that nobody reads: events lost"),
        (FORCED, {"apart": 1}, "events by which that differs from what the reader beside was told"),
        (FORCED, {"told": False}, "a ring of one page that nobody reads: the loss is said"),
    ],
)
def test_rows_of_objects(line: Line, wrong: dict[str, Any], what: str) -> None:
    assert missed(objects.rows([line])) == []
    assert any(each.endswith(what) for each in missed(objects.rows([{**line, **wrong}])))


def launches(**ns: float) -> list[Line]:
    return [{"event": "launch", "observer": name, "ns": [each + 9, each, each - 9]} for name, each in ns.items()]


def test_the_cost_of_a_launch_is_what_the_watched_one_takes_longer() -> None:
    rows = {row.what: row for row in overhead.rows(launches(none=3500.0, launches=5200.0, dirty=6600.0))}
    assert rows["added per launch: launches"].value == pytest.approx(1.7)
    assert rows["added per launch: dirty"].value == pytest.approx(3.1)
    assert rows["added per launch: launches"].ok is True
    assert rows["added per launch: dirty"].ok is False


def test_one_launch_too_few_is_missed() -> None:
    line: Line = {"event": "counted", "by": "PyTorch", "launches": 10_007, "told": 10_007}
    assert missed(overhead.rows([line])) == []
    assert missed(overhead.rows([{**line, "told": 10_006}])) == ["launches by PyTorch that `launches` counted"]


def test_what_was_not_measured_has_no_rows() -> None:
    for module in (objects, overhead, dirty, root):
        assert module.rows([{"event": "part", "name": "x", "seconds": 0.1}]) == []


def test_steps_have_their_middle() -> None:
    lines = [
        {"event": "whole", "what": "token", "observer": name, "ms": ms, "process": 1.0}
        for name, times in (("none", (2.0, 9.0, 2.2)), ("launches", (2.4,)))
        for ms in times
    ]
    rows = {row.what: row for row in overhead.rows(lines)}
    assert rows["token, watched by launches"].value == 2.4
    assert rows["token, watched by launches"].baseline == 2.2


@pytest.mark.parametrize(
    ("changed", "dirty_ranges", "left"),
    [
        ([(100, 10)], [(100, 10)], []),
        ([(100, 10)], [(90, 5), (95, 30)], []),
        ([(100, 10)], [(90, 15), (105, 5)], []),
        ([(100, 10)], [(100, 9)], [(100, 10)]),
        ([(100, 10)], [(100, 4), (105, 9)], [(100, 10)]),
        ([(100, 10), (200, 1)], [(100, 10)], [(200, 1)]),
        ([(100, 10)], [], [(100, 10)]),
        ([], [], []),
    ],
)
def test_what_changed_must_lie_within_what_was_reported(
    changed: list[tuple[int, int]], dirty_ranges: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    assert dirty.missed(changed, dirty_ranges) == left


STEPPED: Line = {
    "event": "stepped", "model": "gpt", "total_bytes": 100, "dirty_bytes": 40, "share": 0.4, "reasons": [],
    "partial": [], "changed": 3, "changed_blocks": 30, "missed": 0, "unknown": 0,
}  # fmt: skip


def test_rows_of_dirty() -> None:
    assert missed(dirty.rows([STEPPED] * 3)) == []
    wrong = dirty.rows([STEPPED, STEPPED, {**STEPPED, "missed": 2, "unknown": 1}])
    assert missed(wrong) == [
        "GPT training step: allocations that changed and were not reported",
        "GPT training step: memory of its own that was not known",
    ]
    still = dirty.rows([{**STEPPED, "changed": 0}] * 3)
    assert missed(still) == ["GPT training step: allocations that changed, median"]


BIRTH: Line = {"event": "birth", "kind": "light", "had_ms": 90.0, "early": True, "ms": 4.0, "kept": True}
LOOKED = {"early": False, "ms": None}


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"had_ms": None}, "whose compute TSG had the class's slice within 500 ms of their being ready, by asking"),
        ({"had_ms": 501.0}, "whose compute TSG had the class's slice within 500 ms of their being ready, by asking"),
        ({"ms": 99.0}, "first TSG to class, median"),
        ({"kept": False}, "whose compute TSG has it when it is asked again"),
    ],
)
def test_rows_of_root(wrong: dict[str, Any], what: str) -> None:
    assert missed(root.rows([BIRTH] * 3)) == []
    assert missed(root.rows([{**BIRTH, **wrong}] * 3)) == [f"programs by the driver's interface: {what}"]


def test_a_class_that_a_look_gave_first_counts_and_has_no_time_of_its_own() -> None:
    found = root.rows([{**BIRTH, "ms": 6.0}, BIRTH | LOOKED, BIRTH | LOOKED | {"had_ms": None}])
    rows = {row.what.removeprefix("programs by the driver's interface: "): row for row in found}
    assert rows["that a look gave it before it was heard of"].value == 1
    assert rows["first TSG to class, median"].value == 6.0
    assert [row.what.rpartition(", ")[0].rpartition(": ")[2] for row in found if row.ok is False] == [
        "whose compute TSG had the class's slice within 500 ms of their being ready"
    ]


def test_only_births_without_a_witness_are_timed() -> None:
    witnessed = BIRTH | {"ms": 50.0, "witness": {"told": 0.3, "questions": 3, "seen": 50.2}}
    rows = {row.what.rpartition(": ")[2]: row.value for row in root.rows([BIRTH, BIRTH, witnessed])}
    assert rows["first TSG to class, longest"] == 4.0
    assert rows["first TSG to class as another process reads the slice back, median of 1"] == 50.2


@pytest.mark.parametrize(
    ("slices", "steered"), [([], False), ([50], True), ([50, 2048], False), ([50, 50], True), ([2048], False)]
)
def test_a_program_has_its_class_when_all_its_groups_have(slices: list[int], steered: bool) -> None:
    assert root.steered([{"slice_us": each} for each in slices]) is steered


BODY = """
import os, subprocess, sys, time
from detshare.tools.bench.ebpf.part import Part, PartError, main, say
def good(quick): say("storm", **{storm})
def bad(quick): say("forced", **{forced}); raise PartError("no GPU today")
def slow(quick):
    print("chatter", flush=True)
    child = subprocess.Popen(["sleep", "300"])
    say("child", pid=child.pid)
    open({begun!r}, "w").close()
    time.sleep(300)
PARTS = {{"good": Part(good, 600), "bad": Part(bad, 600), "slow": Part(slow, 600)}}
if __name__ == "__main__":
    main(PARTS)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package with one experiment, as processes of its own find it."""
    package = tmp_path / "made_parts"
    package.mkdir()
    (package / "__init__.py").touch()
    storm, forced = ({k: v for k, v in line.items() if k != "event"} for line in (STORMED, FORCED))
    (package / "trial.py").write_text(BODY.format(storm=storm, forced=forced, begun=str(tmp_path / "begun")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(experiment, "_PACKAGE", "made_parts")
    monkeypatch.setitem(experiment.EXPERIMENTS, "trial", "trial")
    monkeypatch.setattr(experiment.native, "build", lambda: None)
    import made_parts.trial as made  # type: ignore[import-not-found]

    made.rows = objects.rows
    yield made
    for name in ("made_parts", "made_parts.trial"):
        sys.modules.pop(name, None)


def late(folder: Path) -> Part:
    """A part whose second begins when it has said all: how soon it starts is the machine's matter."""

    class Late(Part):
        def __getattribute__(self, name: str) -> object:
            if name == "seconds":
                until((folder / "begun").exists)
            return super().__getattribute__(name)

    return Late(lambda quick: None, 1.0)


def test_parts_that_fail_or_hang_leave_what_was_measured(module: types.ModuleType, tmp_path: Path) -> None:
    module.PARTS["slow"] = late(tmp_path)
    rows = {row.what: row for row in experiment.measure("trial", tmp_path / "out", False)}
    assert rows["storm of objects: calls told of"].value == 210
    assert rows["storm of objects, a ring of one page that nobody reads: events lost"].value == 200
    assert rows["parts that did not end well"].value == 2
    assert "no GPU today" in (tmp_path / "out" / "logs" / "trial-bad.log").read_text()
    assert "chatter" in (tmp_path / "out" / "logs" / "trial-slow.log").read_text()
    assert results.load(tmp_path / "out" / "trial-gpu.json").proof == "gpu"
    assert results.check(tmp_path / "out" / "trial-gpu.json") == []


def test_a_part_can_be_chosen_and_one_without_a_word_is_told(module: types.ModuleType, tmp_path: Path) -> None:
    assert missed(experiment.measure("trial", tmp_path, True, ["good"])) == []
    module.PARTS.pop("slow")
    with pytest.raises(PartError, match="no part measured anything"):
        experiment.measure("trial", tmp_path, False, ["slow"])


def test_children_of_a_part_that_hangs_are_ended(module: types.ModuleType, tmp_path: Path) -> None:
    lines: list[Line] = []
    why = experiment._one("trial", "slow", late(tmp_path), False, tmp_path / "log", lines)
    assert why == "it was ended after 1 s"
    child = next(line["pid"] for line in lines if line["event"] == "child")
    state = Path(f"/proc/{child}/stat")

    def gone() -> bool:
        try:
            return state.read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    until(gone)  # it was killed: on a busy machine it is gone a moment later
