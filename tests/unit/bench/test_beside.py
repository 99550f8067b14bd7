# SPDX-License-Identifier: Apache-2.0
"""Two checkouts compared: which rows, whose bound, and what is said of a checkout that cannot run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.tools.bench.beside import beside, rows
from detshare.tools.results import Row

PROGRAM = """#!/bin/sh
out=$(echo "$@" | sed 's/.*--out //')
echo "$@" >>"$(dirname "$0")/calls"
row() { echo '{"what": "'$1'", "value": '$2', "unit": "'$3'", "baseline": null, "target": null, "ok": null}'; }
rows="$(row call VALUE ns), $(row calls 3 calls), $(row ONLY 1 ns)"
echo '{"name": "x", "proof": "'PROOF'", "rows": ['"$rows"']}' >"$out/x.json"
"""


def turn(**values: float) -> dict[str, Row]:
    return {what: Row(what, value, "ns") for what, value in values.items()}


def test_the_bound_is_the_others_worst_turn() -> None:
    (row,) = rows([turn(call=110), turn(call=90), turn(call=100)], [turn(call=80), turn(call=99), turn(call=85)])
    assert (row.value, row.baseline, row.target, row.ok) == (100, 85, "<= 99", False)
    (row,) = rows([turn(call=110), turn(call=90), turn(call=99)], [turn(call=80), turn(call=99), turn(call=85)])
    assert row.ok


def test_rows_that_one_turn_lacks_and_rows_that_are_no_time_are_left_out() -> None:
    ours = [turn(call=1, new=1), turn(call=1, new=1)]
    ours[0]["count"] = ours[1]["count"] = Row("count", 1, "calls")
    theirs = [turn(call=1, new=1), {**turn(call=1), "count": Row("count", 1, "calls")}]
    assert [row.what for row in rows(ours, theirs)] == ["call"]


def checkout(folder: Path, value: str, proof: str, only: str) -> Path:
    program = folder / ".venv" / "bin" / "detshare"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.replace("VALUE", value).replace("PROOF", proof).replace("ONLY", only))
    program.chmod(0o755)
    return folder


def test_each_checkout_runs_its_own_command_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, here = checkout(tmp_path / "other", "70", "driver", "gone"), checkout(tmp_path / "here", "80", "unit", "new")
    monkeypatch.setattr("detshare.tools.bench.beside.HERE", here)
    words = [str(other), "x", "--turns", "3", "--out", str(tmp_path / "out"), "--json", "--", "--on", "535"]
    done = CliRunner().invoke(beside, words)
    assert done.exit_code == 1, done.output
    call, load = json.loads(done.stdout)
    assert (call["what"], call["value"], call["baseline"], call["ok"]) == ("call", 80, 70, False)
    assert load["ok"] is None
    written = json.loads((tmp_path / "out" / "x-beside.json").read_text())
    assert written["proof"] == "unit"  # the weaker of both
    for folder in (other, here):
        calls = (folder / ".venv" / "bin" / "calls").read_text().splitlines()
        assert [line.split(" --out")[0] for line in calls] == ["bench x --on 535"] * 3


def test_a_checkout_that_was_not_set_up_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(beside, [str(tmp_path), "interception", "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "make setup" in done.output


def test_the_words_of_a_run_that_fails_are_shown(tmp_path: Path) -> None:
    program = checkout(tmp_path / "other", "1", "unit", "x") / ".venv" / "bin" / "detshare"
    program.write_text("#!/bin/sh\necho no such experiment >&2\nexit 2\n")
    done = CliRunner().invoke(beside, [str(tmp_path / "other"), "nothing", "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "no such experiment" in done.output
