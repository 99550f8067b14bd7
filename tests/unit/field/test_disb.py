# SPDX-License-Identifier: Apache-2.0
"""DISB's workloads: who has which rate, and a run of a part of one with programs that sleep."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detshare.tools.bench.field import report, verdict
from detshare.tools.bench.field import run as runs
from detshare.tools.bench.field.cells import Pace, plan
from detshare.tools.bench.field.programs import PROGRAMS
from detshare.tools.bench.field.suites import SUITES, Mix, Suite, taking_part
from detshare.tools.bench.field.systems import ALONE, Default, Temporal, shipped
from detshare.tools.bench.mix.store import load
from detshare.tools.bench.session import Options, Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from fake_steer import FakeSteer

FAKE = Path(__file__).resolve().parents[1] / "bench" / "fake_mix_worker.py"
DISB = SUITES["field-disb"]


def test_the_rates_are_those_that_disb_states() -> None:
    def rates(mix: Mix) -> list[tuple[str, float, bool] | str]:
        found: list[tuple[str, float, bool] | str] = []
        for name in taking_part(mix.name):
            stated = PROGRAMS[name].arrival
            found.append(PROGRAMS[name].kind if stated is None else (PROGRAMS[name].kind, stated.hz, stated.poisson))
        return found

    a, b, c, d, e = DISB.mixes
    assert rates(a) == [("vgg19", 100, False), "resnet152"]
    assert rates(b) == [("vgg19", 220, False), "resnet152"]
    nets = ["vgg19", "resnet152", "densenet201", "inception", "bert"]
    assert rates(c)[0] == ("vgg19", 100, False)
    assert sorted(map(str, rates(c)[1:])) == sorted(nets)
    for mix, poisson in ((d, False), (e, True)):
        assert rates(mix)[:5] == [(net, 20, poisson) for net in nets]
        assert sorted(map(str, rates(mix)[5:])) == sorted(nets)
        assert [PROGRAMS[name].high for name in taking_part(mix.name)] == [True] * 5 + [False] * 5
    assert [mix.label for mix in DISB.mixes] == ["A", "B", "C", "D", "E"]


def test_all_programs_are_measured_alone_first() -> None:
    cells = plan(DISB, shipped())
    programs = {name for mix in DISB.mixes for name in taking_part(mix.name)}
    assert {cell.mix for cell in cells if cell.system == ALONE} == programs
    assert len(cells) == len(programs) + 5 * len(shipped())
    assert len({cell.name for cell in cells}) == len(cells)


def test_several_clients_go_before_the_closed_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = property(lambda self: [sys.executable, str(FAKE), "--kind", "graph"])
    monkeypatch.setattr("detshare.tools.bench.field.programs.Program.argv", argv)
    mix = Mix("vgg-poisson-20", ("bert-poisson-20", "bert-closed"), "E")
    suite = Suite("field-disb", "a test", given=(mix,))
    steer = FakeSteer(tmp_path / "run")
    path = tmp_path / "raw" / "cells.jsonl"
    pace = Pace(requests=20, least=0.8, most=1.0, alone=0.6, overhead=0.4, start=2.0, end=0.5)
    with Session(Options("field-disb", 1.0, 1, tmp_path, budget=600.0)) as session:
        session.steer = steer  # type: ignore[assignment]
        runs.run(session, runs.Asked(suite, (Default(), Temporal()), (), (), pace, 0.05), path)
    cells = {cell.cell: cell for cell in load(path)}
    assert len(cells) == 5
    one = cells[f"{mix.name}: DetShare temporal"]
    assert one.server is not None
    assert one.period_ms == 50.0
    # one that is told its times beside one that has no pause
    assert one.back["bert-poisson-20"].rate < one.back["bert-closed"].rate
    assert one.back["bert-poisson-20"].p99 is not None
    told = [each["klass"] for name, _pid, each in steer.told if name == "set-priority"]
    assert sorted(told) == ["high", "high", "low"]
    rows = [row.what for row in verdict.rows(list(cells.values()), suite)]
    assert f"{mix.name}: DetShare temporal: bert-poisson-20: p99" in rows
    text = report.page(list(cells.values()), suite, "cells.jsonl")
    assert "<td>E</td><td>vgg-poisson-20</td><td>2</td>" in text
