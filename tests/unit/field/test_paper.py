# SPDX-License-Identifier: Apache-2.0
"""The paper's models: trainings side by side without a server, with programs that sleep."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detshare.tools.bench.field import report, verdict
from detshare.tools.bench.field import run as runs
from detshare.tools.bench.field.cells import Pace, plan
from detshare.tools.bench.field.programs import PROGRAMS
from detshare.tools.bench.field.suites import SUITES, Mix, Suite
from detshare.tools.bench.field.systems import ALONE, Default, Temporal, shipped
from detshare.tools.bench.mix.store import load
from detshare.tools.bench.session import Options, Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from fake_steer import FakeSteer

FAKE = Path(__file__).resolve().parents[1] / "bench" / "fake_mix_worker.py"


def test_trainings_side_by_side_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = property(lambda self: [sys.executable, str(FAKE), "--kind", "vit"])
    monkeypatch.setattr("detshare.tools.bench.field.programs.Program.argv", argv)
    mix = Mix("", ("rnn-train", "rnn-train-2"), "trainings")
    suite = Suite("field-paper", "a test", given=(mix,))
    steer, path = FakeSteer(tmp_path / "run"), tmp_path / "raw" / "cells.jsonl"
    pace = Pace(alone=0.5, overhead=0.4, start=2.0, end=0.5)
    with Session(Options("field-paper", 1.0, 1, tmp_path, budget=600.0)) as session:
        session.steer = steer  # type: ignore[assignment]
        runs.run(session, runs.Asked(suite, (Default(), Temporal()), (), (), pace, 0.05), path)
    cells = load(path)
    assert [cell.cell for cell in cells] == [
        f"rnn-train: {ALONE}",
        f"rnn-train-2: {ALONE}",
        f"{mix.name}: default slicing",
        f"{mix.name}: DetShare temporal",
    ]
    slicing, ours = verdict.together(cells)
    alone = {cell.mix: cell.back[cell.mix].rate for cell in cells[:2]}
    assert slicing.progress == {name: one.rate / alone[name] for name, one in cells[2].back.items()}
    assert slicing.stp == sum(slicing.progress.values()) > 0
    assert [each["klass"] for name, _pid, each in steer.told if name == "set-priority"] == ["low", "low"]
    row = next(row for row in verdict.rows(cells, suite) if row.what == f"{mix.name}: {ours.system}: system throughput")
    assert (row.value, row.baseline) == (ours.stp, slicing.stp)
    text = report.page(cells, suite, "cells.jsonl")
    assert "2 of 2 cells of 2 ways" in text
    assert "Side by side" in text


def test_each_mix_of_the_suite_has_its_programs_and_is_planned_once() -> None:
    suite = SUITES["field-paper"]
    cells = plan(suite, shipped())
    assert len({cell.name for cell in cells}) == len(cells)
    used = {name for mix in suite.mixes for name in (mix.server, *mix.backgrounds) if name}
    assert {cell.mix for cell in cells if cell.system == ALONE} == used
    assert used <= set(PROGRAMS)
    assert all(Path(PROGRAMS[name].argv[1]).is_file() for name in used)
