# SPDX-License-Identifier: Apache-2.0
"""The serving engine's traces and arithmetic, without transformers; and a run with an engine that sleeps."""

from __future__ import annotations

import json
import statistics
import sys
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from detshare.tools.bench.field import report, verdict
from detshare.tools.bench.field import run as runs
from detshare.tools.bench.field.cells import Pace, failed
from detshare.tools.bench.field.policies import policed
from detshare.tools.bench.field.programs import PROGRAMS, Objectives, Program
from detshare.tools.bench.field.serving import figures
from detshare.tools.bench.field.suites import SUITES, Suite
from detshare.tools.bench.field.systems import Default
from detshare.tools.bench.mix.store import load
from detshare.tools.bench.mix.worker import Worker
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.steer import Steer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/detshare/tools/bench/workloads/field"))
import serving as program
import traces
from fake_steer import FakeSteer

HERE = Path(__file__).resolve().parent

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,9000,109
2023-11-16 18:15:52.2224670,879,500
"""


# -- traces -------------------------------------------------------------------------------------------------------


def test_azures_times_are_stretched_and_go_on(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    some = list(islice(traces.azure(path, 0.25), 7))
    assert some[0].at == 0.0
    assert some[2].at == pytest.approx(0.5), "three requests with 0.25 s between two on average"
    assert some[1].at == pytest.approx(0.5 * 4.314579 / 5.541877, rel=1e-4)
    assert [(each.prompt, each.wanted) for each in some[:3]] == [(374, 44), (2048, 109), (879, 128)]
    assert some[3].at == pytest.approx(0.75)
    assert (some[3].prompt, some[6].at) == (374, pytest.approx(1.5))


@pytest.mark.parametrize(("text", "why"), [("a,b\n1,2\n", "no column"), (AZURE.split("2023", 1)[0], "no two requests")])
def test_a_file_that_is_no_trace_says_so(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=why):
        traces.azure(path, 1.0)


def test_the_synthetic_trace_bursts_and_is_the_same_each_time() -> None:
    some = list(islice(traces.bursty(1, 0.25), 4000))
    assert some[:50] == list(islice(traces.bursty(1, 0.25), 50))
    assert some[:50] != list(islice(traces.bursty(2, 0.25), 50))
    gaps = [later.at - earlier.at for earlier, later in pairwise(some)]
    assert statistics.fmean(gaps) == pytest.approx(0.25, rel=0.1)
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(2**0.5, rel=0.1), "Poisson's is 1"
    prompts = [each.prompt for each in some]
    assert traces.SHORTEST <= min(prompts) < 20
    assert 1900 < max(prompts) <= traces.MOST_PROMPT
    assert statistics.median(prompts) < statistics.fmean(prompts) / 1.5, "most are short, some are long"


def test_requests_are_due_once() -> None:
    stream = iter([traces.Request(at, 1, 1) for at in (0.0, 0.1, 0.3, 9.0)])
    held: list[object] = []
    assert [each.at for each in traces.due(stream, held, 0.1)] == [0.0, 0.1]
    assert list(traces.due(stream, held, 0.2)) == []
    assert [each.at for each in traces.due(stream, held, 0.5)] == [0.3]


# -- arithmetic ---------------------------------------------------------------------------------------------------


def test_the_ledger_counts_from_when_a_request_was_due(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[float] = []
    ledger = program.Ledger(told.append, 10.0)
    ledger.begin("a", 10.0, 10.5, 5)
    ledger.begin("b", 10.0, 10.0, 1)
    ledger.has("a", 0, 10.6)
    ledger.has("a", 1, 11.0)
    ledger.has("a", 3, 11.2)
    ledger.has("a", 5, 11.8)
    ledger.has("a", 5, 99.0)
    ledger.has("b", 1, 10.25)
    assert not ledger.open
    assert ledger.total == 2
    ledger.flush()
    ledger.flush()
    first, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["latency_us"] == [1e6, 0.25e6]
    assert first["own_us"] == [0.5e6, 0.25e6]
    assert (last["tpot_us"], last["tokens"], last["end"]) == ([0.2e6, 0.0], [5, 1], [11.8, 10.25])
    # ten times 0.2 s a token is more than the 1 s to the first; one token has no further one
    assert told == [pytest.approx(2.0), pytest.approx(0.25)]


def test_goodput_takes_both_objectives() -> None:
    line = {
        "end": [1.0, 2.0, 3.0, 4.0, 9.0],
        "ttft_us": [100e3, 600e3, 100e3, 500e3, 1.0],
        "tpot_us": [10e3, 10e3, 60e3, 50e3, 1.0],
        "tokens": [11, 11, 11, 11, 99],
    }
    found = {each.what: each.value for each in figures([line], 0.0, 5.0, Objectives(500.0, 50.0))}
    assert found["requests finished"] == 4
    assert found["goodput (TTFT <= 500 ms, TPOT <= 50 ms)"] == pytest.approx(2 / 5)
    assert (found["TTFT objective missed"], found["TPOT objective missed"]) == (25.0, 25.0)
    assert found["output tokens"] == pytest.approx(44 / 5)
    assert (found["TPOT, p50"], found["TPOT, p90"]) == (10.0, 60.0)
    assert figures([line], 6.0, 7.0, Objectives()) == []
    found = {each.what: each.value for each in figures([line], 0.0, 5.0, Objectives())}
    goodput = {what: value for what, value in found.items() if what.startswith("goodput")}
    assert list(goodput) == [
        "goodput (TTFT <= 500 ms, TPOT <= 100 ms)",  # its own objectives first: reports take it
        "goodput (TTFT <= 500 ms, TPOT <= 50 ms)",
    ]
    assert list(goodput.values()) == pytest.approx([3 / 5, 2 / 5])
    assert found["TPOT objective missed"] == 0.0


# -- a run --------------------------------------------------------------------------------------------------------


def test_a_run_has_ttft_tpot_and_goodput(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def argv(self: Program) -> list[str]:
        script = HERE / "fake_serving.py" if self.slo else HERE.parent / "bench" / "fake_mix_worker.py"
        return [sys.executable, str(script), "--kind", self.kind]

    monkeypatch.setattr("detshare.tools.bench.field.programs.Program.argv", property(argv))
    monkeypatch.delenv("FIELD_AZURE_TRACE", raising=False)
    monkeypatch.setattr(PROGRAMS["llama-bursty"].arrival.__class__, "period_ms", property(lambda self: 20.0))
    suite = Suite("field-serving", "a test", ("llama-bursty", "llama-azure"), (("gpt2-train",),), poisson=False)
    path = tmp_path / "raw" / "cells.jsonl"
    pace = Pace(requests=60, least=1.0, most=1.2, alone=0.5, warm=0.2, overhead=0.4, start=2.0, end=0.5)
    with Session(Options("field-serving", 1.0, 1, tmp_path, budget=600.0)) as session:
        steer = FakeSteer(tmp_path / "run")
        session.steer = steer  # type: ignore[assignment]
        runs.run(session, runs.Asked(suite, (Default(), *policed()), (), (), pace, 0.4), path)
    cells = {cell.cell: cell for cell in load(path)}
    # an engine that has no trace is a failed cell, not a run that stops
    assert "FIELD_AZURE_TRACE" in failed(cells["llama-azure + gpt2-train: default slicing"])
    for name in ("llama-bursty: alone", "llama-bursty + gpt2-train: default slicing"):
        cell = cells[name]
        assert cell.server is not None
        assert cell.server.count > 0
        seen = {each.what: each.value for each in cell.figures}
        # a step takes 2 ms and gives each request a token
        assert seen["TPOT, p50"] >= 2.0
        assert seen["requests finished"] / cell.seconds >= seen["goodput (TTFT <= 500 ms, TPOT <= 50 ms)"]
    rows = {row.what: row for row in verdict.rows(list(cells.values()), suite)}
    row = rows["llama-bursty + gpt2-train: default slicing: TPOT, p50"]
    assert row.baseline is not None
    text = report.page(list(cells.values()), suite, "cells.jsonl")
    assert "goodput (TTFT" in text
    for way in ("slo-aware", "tpot-first"):
        seen = {each.what: each.value for each in cells[f"llama-bursty + gpt2-train: DetShare {way}"].figures}
        assert seen["actions of the policy"] > 0, "the daemon of this test counts each word as one"
        assert {"TTFT, p99", "TPOT, p99", "refused actions of the policy"} <= set(seen)
    told = [(name, given) for name, _pid, given in steer.told if name in ("policy", "deadline")]
    assert told == [
        ("policy", {"name": "slo-aware"}),
        ("deadline", {"us": 500e3}),
        ("deadline", {"us": None}),
        ("policy", {"name": "slo-aware"}),
        ("policy", {"name": "tpot-first", "tpot_ms": "100"}),
        ("policy", {"name": "slo-aware"}),
    ]
    classes = [given["klass"] for name, _pid, given in steer.told if name == "set-priority"]
    assert sorted(classes) == ["high", "low"], "tpot-first gives nobody a class"
    assert steer.began_with == ["None", "launches.toml"], "eBPF counts launches for that policy alone"
    row = rows["DetShare tpot-first: mixes, TPOT objective missed: no more than under default slicing"]
    assert row.baseline == 1
    assert {one["figure"] for one in report.table(list(cells.values()))} == {"p99", "throughput", "goodput"}


def test_the_suite_has_both_traces() -> None:
    suite = SUITES["field-serving"]
    assert {PROGRAMS[name].kind for name in suite.servers} == {"azure", "bursty"}
    assert "synthetic" in PROGRAMS["llama-bursty"].stands


@pytest.mark.e2e
def test_a_daemon_takes_what_the_policies_say(tmp_path: Path) -> None:
    """A real one, on the model, whose first program counts as the server."""
    with Session(Options("field-serving", 1.0, 1, tmp_path)) as session:
        session.steer = Steer(tmp_path / "run", backend="model")
        session.steer.start()
        pid = int(session.steer.ps()["programs"][0]["pid"])
        server = cast(Worker, SimpleNamespace(pid=pid))
        for way in policed():
            way.prepare(session, server, Objectives())
            assert session.steer.policy_status()["name"] == way.policy
            for each in set(way.wanted("s", ["b"]).values()):  # type: ignore[union-attr]
                if each.klass:
                    session.steer.verb("set-priority", pid, klass=each.klass)
                session.steer.let_decide(pid)
            figures, notes = way.over(session)
            assert {each.what for each in figures} == {"actions of the policy", "refused actions of the policy"}
            assert any(note.startswith("here: ") for note in notes), "the model sees neither requests nor launches"
            assert f"{way.policy} took no action" in notes
            assert session.steer.policy_status()["name"] == "slo-aware"
