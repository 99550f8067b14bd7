# SPDX-License-Identifier: Apache-2.0
"""The probes: real programs on the stand-in for libcuda, under default slicing; the table of ids."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from detshare.tools.bench.field import gvb, report, verdict
from detshare.tools.bench.field import run as runs
from detshare.tools.bench.field.cells import Pace, failed
from detshare.tools.bench.field.probes.calls import Calls, Contexts
from detshare.tools.bench.field.probes.kill import Fault, Kill
from detshare.tools.bench.field.probes.limit import Limit
from detshare.tools.bench.field.probes.neighbour import Bits, Equals, Neighbour, jain
from detshare.tools.bench.field.probes.traffic import Managed, Traffic
from detshare.tools.bench.field.suites import SUITES, Suite
from detshare.tools.bench.field.systems import ALONE, Default, System, Temporal
from detshare.tools.bench.field.verdict import Shown
from detshare.tools.bench.mix.figures import Figure, Measured, Server
from detshare.tools.bench.mix.store import load
from detshare.tools.bench.session import Options, Session
from tests.unit.builds import made

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from fake_steer import FakeSteer

ROOT = Path(__file__).resolve().parents[3]
AGAIN = Path(__file__).resolve().parents[1] / "bench" / "fake_again.py"
IMAGE = """fakecuda 1
kernel empty params= duration_us=2 registers=8 shared=0
kernel burn params=8,8 duration_us=400 registers=32 shared=0
kernel fault params= duration_us=2 registers=8 shared=0
"""
PROBES = (
    Calls(40),
    Contexts(2),
    Limit(64),
    Kill(64),
    Fault(),
    Neighbour(),
    Equals(2),
    Bits(("sums",), 1),
    Traffic(1),
    Managed(2),
)
SMALL = Suite("field-gvb", "a test", probes=PROBES)
QUICK = Pace(alone=0.3, overhead=0.1, start=1.0, end=0.5)


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "image"
    image.write_text(IMAGE)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(made("fakecuda")))
    monkeypatch.setenv("KERNELS_IMAGE", str(image))
    monkeypatch.setenv("FAKECUDA_SHARED", str(tmp_path / "memory"))


@pytest.fixture
def bytes_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in computes nothing, so what is digested comes from the CPU."""
    real = Default.command

    def command(self: Default, argv: list[str], server: bool) -> tuple[list[str], dict[str, str]]:
        told, env = real(self, argv, server)
        return [str(AGAIN) if word.endswith("mix/again.py") else word for word in told], env

    monkeypatch.setattr(Default, "command", command)
    monkeypatch.setattr(Temporal, "command", command)


def ran(
    tmp_path: Path, suite: Suite, resumed: tuple[Measured, ...] = (), systems: tuple[System, ...] = (Default(),)
) -> dict[str, Measured]:
    path = tmp_path / "raw" / "cells.jsonl"
    with Session(Options("field-gvb", 1.0, 1, tmp_path, budget=2000.0)) as session:
        session.steer = FakeSteer(tmp_path / "run")  # type: ignore[assignment]
        runs.run(session, runs.Asked(suite, systems, (), resumed, QUICK, 0.05), path)
    return {cell.cell: cell for cell in load(path)}


def test_each_probe_measures_on_the_stand_in(tmp_path: Path, standin: None, bytes_of_the_cpu: None) -> None:
    cells = ran(tmp_path, SMALL)
    for system in (ALONE, "default slicing"):
        wrong = {cell.mix: failed(cell) for cell in cells.values() if cell.scheme == system and failed(cell)}
        # default slicing has no limit; that is its result
        assert set(wrong) == ({"memory limit"} if system != ALONE else set()), wrong
    figures = {(cell.scheme, each.what): each.value for cell in cells.values() for each in cell.figures}
    assert figures["default slicing", "launch and wait"] > figures["default slicing", "launch"] > 0
    assert figures["default slicing", "context, longest"] >= figures["default slicing", "context, median"] > 0
    assert figures[ALONE, "time to refuse, median"] > 0
    for what in ("GPU memory left", "newcomers refused", "programs beside it that ended", "changed outputs of sums"):
        assert figures["default slicing", what] == 0, what
    assert figures["default slicing", "programs beside a fault that ended"] == 0
    kept = figures["default slicing", "rate kept beside a neighbour"]
    assert kept > 0
    assert figures["default slicing", "rate lost to a neighbour"] == pytest.approx(100 - kept)
    for where in ("within the GPU", "within L2", "to the GPU"):
        assert figures[ALONE, f"copy {where}"] > 0, where
        lost = figures["default slicing", f"rate lost of copies {where}"]
        assert lost == pytest.approx(100 - figures["default slicing", f"rate kept of copies {where}"]), where
    assert 0.5 <= figures["default slicing", "fairness of two that copy (Jain)"] <= 1.0
    assert figures["default slicing", "prefetched to the GPU"] > 0
    assert 0.5 <= figures["default slicing", "fairness of 2 equal programs (Jain)"] <= 1.0
    again = ran(tmp_path, SMALL, tuple(cells.values())[:-1])
    assert list(again) == list(cells)
    kept = [cell.cell for cell in again.values() if cell.seconds == cells[cell.cell].seconds]
    assert kept == list(cells)[:-1]
    text = report.page(list(cells.values()), SMALL, "cells.jsonl")
    assert "OH-001" in text
    assert f"{len(PROBES) - 1} of {len(PROBES)} cells of 1 ways" in text


def test_a_killed_program_whose_memory_stays_is_seen(
    tmp_path: Path, standin: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detshare.tools.bench.field.probes.kill.PATIENCE", 1.0)
    monkeypatch.setattr("detshare.tools.bench.field.probes.kill.os", SimpleNamespace(kill=lambda pid, number: None))
    cells = ran(tmp_path, replace(SMALL, probes=(Kill(64),)))
    figures = {each.what: each.value for each in cells["kill: default slicing"].figures}
    assert figures["GPU memory left"] >= 64


def test_a_probe_has_rows_beside_alone_and_ours_has_targets() -> None:
    def cell(system: str, *figures: Figure) -> Measured:
        return Measured(f"kill: {system}", "r", "kill", system, (), 1.0, None, figures=figures)

    left = Figure("GPU memory left", 0.0, "MiB")
    some = [
        cell(ALONE, left),
        cell("MPS", replace(left, value=4.0)),
        cell("DetShare temporal", replace(left, value=2.0)),
    ]
    alone, mps, ours = verdict.rows(some, SMALL)
    assert (alone.baseline, mps.baseline, ours.baseline) == (None, 0.0, 0.0)
    assert (mps.ok, ours.ok) == (None, False)
    assert [Measured.of(each.to_json()) for each in some] == some


def test_a_limit_that_is_not_held_is_said(tmp_path: Path, standin: None) -> None:
    cells = ran(tmp_path, replace(SMALL, probes=(Limit(64),)), systems=(Temporal(),))
    one = cells["memory limit: DetShare temporal"]
    assert [(each.what, each.value) for each in one.figures] == [("memory had of the limit", 200.0)]
    assert one.notes == ("a limit of 64 MiB was set and not held",)


def test_answers_that_differ_are_counted() -> None:
    alone = Server(4, 1.0, 1.0, 1.0, 1.0, 1.0, answers={"a": 4})
    kept = Shown("s + b", "MPS", replace(alone, answers={"a": 3}), alone, {})
    assert kept.changed == 0
    assert replace(kept, server=replace(alone, answers={"a": 2, "b": 1})).changed == 1
    assert replace(kept, server=replace(alone, answers={})).changed is None, "it does not tell"


def test_fairness_is_jains() -> None:
    assert jain([1.0, 1.0]) == 1.0
    assert jain([1.0, 0.0]) == 0.5
    assert jain([0.0, 0.0]) == 0.0


# -- the ids ------------------------------------------------------------------------------------------------------


def test_every_id_of_gpu_virt_bench_has_a_verdict_once() -> None:
    ids = [each for metric in gvb.METRICS for each in metric.ids]
    groups = {"OH": 10, "IS": 10, "LLM": 10, "BW": 4, "CACHE": 4, "PCIE": 4, "NCCL": 4, "SCHED": 4, "FRAG": 3}
    groups |= {"ERR": 3, "PAPER": 6, "FCSP": 12, "UVM": 10}
    assert sorted(ids) == sorted(f"{group}-{n:03d}" for group, count in groups.items() for n in range(1, count + 1))
    probes = {probe.name for probe in SUITES["field-gvb"].probes}
    results = {path.stem for path in (ROOT / "docs" / "results").glob("*.json")} | set(SUITES)
    for metric in gvb.METRICS:
        ours = metric.verdict in (gvb.Verdict.MEASURED, gvb.Verdict.CORRECTED)
        assert (metric.by in probes) == ours, metric.first
        assert (metric.by in results) == (metric.verdict is gvb.Verdict.ELSEWHERE), metric.first
        assert metric.how


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "use" / "gpu-virt-bench.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("|")] == gvb.markdown()
