# SPDX-License-Identifier: Apache-2.0
"""Which sources a result measures, whether they are today's, and the pages that say so."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.tools import provenance, result_pages, results
from detshare.tools.main import detshare
from detshare.tools.results import Result, Row

ROWS = (Row("p99", 12.0, "ms", 10.0, "<= 1.05 x baseline"), Row("errors", 0, "", None, "== 0"), Row("launches", 3, ""))
FOLDER = Path(__file__).resolve().parents[3] / "docs" / "results"

HASH = provenance._hash


@pytest.fixture(autouse=True)
def history(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A checkout of two commits: ctl changed in between, runtime did not."""
    trees = {"abc1234:ctl": "1" * 40, "HEAD:ctl": "2" * 40, "abc1234:runtime": "3" * 40, "HEAD:runtime": "3" * 40}

    def ask(*words: str) -> str:
        return {"rev-parse": trees.get(words[-1], "fed9876"), "diff": " 1 file changed, 7 insertions(+)"}[words[0]]

    def ask_tree(commit: str, path: str) -> str:
        return trees.get(f"{commit}:{path}", "")

    monkeypatch.setattr(provenance, "ask_git", ask)
    monkeypatch.setattr(provenance, "_hash", ask_tree)
    forget()
    yield trees
    forget()


def forget() -> None:
    """What git said: this history is not the other tests'."""
    provenance.ask_head.cache_clear()
    provenance.lines_changed.cache_clear()


def result(name: str = "temporal", commit: str = "abc1234") -> Result:
    return Result(name, "gpu", "detshare bench", commit, "a GPU", "2026-01-31T12:00:00Z", ROWS)


def put(folder: Path, one: Result) -> Path:
    path = results.write(one, folder)
    (folder / "raw").mkdir(exist_ok=True)
    with gzip.open(folder / "raw" / f"{one.name}.jsonl.gz", "wt") as stream:
        stream.write("{}\n")
    return path


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("temporal", ("ctl",)),
        ("harmless-h200", ("ctl",)),
        ("ebpf-objects-gpu", ("ebpf",)),
        ("stress-debug", ("kmod",)),
        ("mix-saturated", ("ctl",)),
        ("temporals", provenance.PRODUCT),
    ],
)
def test_a_variant_measures_what_its_experiment_does(name: str, measured: tuple[str, ...]) -> None:
    assert provenance.paths(name) == measured


def test_each_published_result_is_of_a_known_experiment() -> None:
    assert [path.stem for path in FOLDER.glob("*.json") if provenance.paths(path.stem) == provenance.PRODUCT] == []


def test_what_is_written_carries_the_hashes_of_its_commit(tmp_path: Path) -> None:
    assert results.load(put(tmp_path, result())).measures == {"ctl": "1" * 40}
    assert "measures" not in json.loads(put(tmp_path, result("weights", "0000000")).read_text())
    assert "measures" not in json.loads(put(tmp_path, result("sweep", "--help")).read_text())


def test_a_result_is_older_once_what_it_measures_changed(history: dict[str, str]) -> None:
    assert provenance.state({"ctl": "1" * 40}) == provenance.OLDER
    assert provenance.state({"runtime": "3" * 40}) == provenance.CURRENT
    assert provenance.state({"runtime": "3" * 40, "ctl": "1" * 40}) == provenance.OLDER
    assert provenance.state({}) == provenance.UNKNOWN
    del history["HEAD:runtime"]  # moved, or gone
    assert provenance.state({"runtime": "3" * 40}) == provenance.OLDER


def test_a_path_that_moved_is_found_where_it_was(history: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = "ctl/detshare/ctl/sim", "ctl/sim"
    history |= {f"abc1234:{old}": "4" * 40, f"HEAD:{new}": "4" * 40, "HEAD": "fed9876"}
    asked: list[tuple[str, ...]] = []

    def ask(*words: str) -> str:
        asked.append(words)
        return "" if words[0] == "diff" else history.get(words[-1], "")

    monkeypatch.setattr(provenance, "ask_git", ask)
    monkeypatch.setattr(provenance, "_hash", HASH)
    HASH.cache_clear()
    assert provenance.hashes("sim-validation", "abc1234") == {new: "4" * 40}
    assert provenance.state({new: "4" * 40}) == provenance.CURRENT
    assert provenance.lines_changed("abc1234", new) == (0, 0)
    assert asked[-1][-2:] == (f":/{new}", f":/{old}")
    HASH.cache_clear()


def test_outside_git_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "ask_git", lambda *words: "")
    assert provenance.state({"ctl": "1" * 40}) == provenance.UNKNOWN
    assert provenance.lines_changed("0000000", "ctl") is None


def test_old_results_are_told_and_are_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, result())
    put(tmp_path, result("gates"))
    put(tmp_path, result("weights", "unknown"))
    assert results.main(["table", str(tmp_path)]) == 0
    assert results.main(["check", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "results: older, 1 of 3: temporal\n" in said
    assert "results: unknown, 1 of 3: weights\n" in said


def test_hashes_are_added_where_the_history_has_them(tmp_path: Path) -> None:
    path = put(tmp_path, result())
    document = json.loads(path.read_text())
    del document["measures"]
    path.write_text(json.dumps(document))
    put(tmp_path, result("weights", "unknown"))
    assert results.fill_measures(tmp_path) == [path]
    assert json.loads(path.read_text())["measures"] == {"ctl": "1" * 40}


@pytest.mark.parametrize(("name", "commit"), [("temporal", "abc1234-dirty"), ("policies", "1d8f884-dirty")])
def test_a_dirty_result_is_refused(tmp_path: Path, name: str, commit: str) -> None:
    assert "measure anew" in results.check(put(tmp_path, result(name, commit)))[0]


def test_the_command_says_what_is_wrong_with_results(tmp_path: Path) -> None:
    put(tmp_path, result(commit="abc1234-dirty"))
    said = CliRunner().invoke(detshare, ["results", "check", str(tmp_path)])
    assert said.exit_code == 1
    assert "measure anew" in said.output


def test_every_missed_target_is_on_the_page_and_nothing_else(tmp_path: Path) -> None:
    page = result_pages.misses([result(), result("weights")])
    assert "2 of 4 targets are missed, in 2 of 2 results." in page
    assert page.count("| p99 | 12 | ms | 10 | <= 1.05 x baseline |") == 2
    assert "errors" not in page
    assert "launches" not in page
    put(tmp_path, result())
    results.write_pages(tmp_path)
    (tmp_path / "MISSES.md").write_text("none\n")
    assert [problem for problem in results.check_folder(tmp_path) if "MISSES.md: not up to date" in problem]


def test_the_page_of_old_results_names_each_with_its_change(tmp_path: Path) -> None:
    put(tmp_path, result())
    assert results.main(["table", str(tmp_path)]) == 0
    assert results.main(["stale", str(tmp_path)]) == 0
    page = (tmp_path / "STALE.md").read_text()
    assert "State at commit fed9876." in page
    assert "| temporal | **older** | gpu | abc1234 | `ctl` +7 -0 |" in page
    assert results.check_folder(tmp_path) == []
    put(tmp_path, result("weights"))
    assert [problem for problem in results.check_folder(tmp_path) if "STALE.md: names other results" in problem]
