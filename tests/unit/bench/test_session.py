# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from detshare.tools import results
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.stats import Spread, latencies, rate

FAKE = Path(__file__).resolve().parent / "fake_workload.py"


def options(out: Path) -> Options:
    return Options("temporal", 1.0, 1, out, quick=True)


def test_a_slot_has_the_windows_of_its_own_time_and_all_is_written(tmp_path: Path) -> None:
    with Session(options(tmp_path)) as session:
        session.proof = "unit"
        [program] = session.start_all({"fake": [sys.executable, str(FAKE), "fast"]})
        slot = session.slot("first", 0.4, program, settle=0.1)
        ours = slot.windows["fake"]
        assert all(slot.begin < one["t1"] and one["t0"] < slot.end for one in ours)
        # a starved program has just one, which reaches beyond
        assert len(ours) == 1 or all(slot.begin <= one["t0"] and one["t1"] <= slot.end for one in ours)
        session.row("rate", rate(slot.windows["fake"]), "items/s", target="> 0")
        session.row("p50", latencies(slot.windows["fake"])[0], "us", 4000.0, "<= 1.05 x baseline")
        session.finish(program)
        path = session.write()
    assert results.check(path) == []
    loaded = results.load(path)
    assert [row.ok for row in loaded.rows] == [True, False, None]
    assert "stolen" in loaded.rows[2].what
    assert loaded.rows[1].value == 5000.0
    assert loaded.command == "detshare bench temporal --seconds 1 --rounds 1 --quick"
    with gzip.open(tmp_path / "raw" / "temporal.jsonl.gz", "rt") as stream:
        lines = [json.loads(line) for line in stream]
    kinds = {(line["program"], line["event"]) for line in lines}
    assert {("fake", "ready"), ("fake", "window"), ("fake", "summary"), ("bench", "slot")} <= kinds


def test_spread_rows_judge_the_median_only(tmp_path: Path) -> None:
    with Session(options(tmp_path)) as session:
        session.spread_rows("LC p99", Spread(2.0, 1.0, 9.0), "us", 2.0, "<= 1.05 x baseline")
    assert [(row.what, row.value, row.ok) for row in session.rows] == [
        ("LC p99", 2.0, True),
        ("LC p99, lowest round", 1.0, None),
        ("LC p99, highest round", 9.0, None),
    ]


def test_programs_end_and_the_folder_goes_when_an_experiment_fails(tmp_path: Path) -> None:
    session = Session(options(tmp_path))
    folder = session.steer.run_dir.parent
    fast = session.start("fast", [sys.executable, str(FAKE), "fast"])
    fast.ready(20)
    with pytest.raises(ProgramError, match="no GPU for this test"), session:
        session.start_all({"dies": [sys.executable, str(FAKE), "dies"]})
    assert not fast.alive
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
