# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.ctl.sim import profile
from detshare.ctl.sim.errors import SimError
from detshare.tools import results
from detshare.tools.bench import sim_validation as bench

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"


def compared(what: str, model: float, measured: float, taught: bool = False) -> bench.Compared:
    return bench.Compared(f"pair: {what}", "p99", "us", model, None, measured, taught)


def test_errors_are_of_what_the_model_was_not_taught() -> None:
    rows = {
        row.what: row
        for row in bench.rows([compared("a", 110, 100), compared("b", 70, 100), compared("c", 9, 1, True)])
    }
    assert rows["figures that the model was not taught"].value == 2
    assert rows["pair: p99: worst error"].value == pytest.approx(30)
    assert rows["pair: p99: median error"].value == pytest.approx(20)
    assert (rows["pair: a"].value, rows["pair: a"].baseline) == (110, 100)
    assert "pair: c (taught)" in rows
    assert compared("none", 5, 0).error is None


def test_nothing_that_was_looked_at_for_validation_alone_counts_as_taught() -> None:
    rows = profile.Rows(RESULTS / "isolation.json")
    rows.look("BE 8 ms: MPS: LC p99")
    assert rows.used == []
    rows.take("LC alone p50")
    assert rows.used == ["LC alone p50"]
    with pytest.raises(SimError, match="has no row 'x'; next: detshare bench isolation"):
        rows.look("x")


def test_the_published_rows_are_those_of_the_published_comparison() -> None:
    """The taught rows of the file are the profile's; every measured figure in it is the published one."""
    published = {row.what: row for row in results.load(RESULTS / "sim-validation.json").rows}
    used = profile.packaged().used
    compared_rows = [row for row in published.values() if row.baseline is not None]
    assert len(compared_rows) > 150
    for row in compared_rows:
        name, what = row.what.split(": ", 1)
        taught = what.endswith(" (taught)")
        what = what.removesuffix(" (taught)")
        assert profile.Rows(RESULTS / f"{name}.json").look(what) == row.baseline
        assert taught == (what in used.get(name, []))


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(bench.sim_validation, ["--measured", str(tmp_path)])
    assert done.exit_code == 1
    assert "weights.json: cannot be read" in done.output
    (tmp_path / "weights.json").write_text(json.dumps({"rows": []}), encoding="utf-8")
    done = CliRunner().invoke(bench.sim_validation, ["--measured", str(tmp_path)])
    assert done.exit_code == 1
    assert "is no result of detshare bench" in done.output
