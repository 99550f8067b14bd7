# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json
import math
import operator
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.tools import results
from detshare.tools.results import Result, ResultError, Row

COMPARE = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}

numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**18), 10**18))
texts = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)
names = st.from_regex(r"[a-z0-9]+([-_][a-z0-9]+)*", fullmatch=True).map(lambda name: name[:100].rstrip("-_"))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    baseline = draw(st.none() | numbers)
    target = draw(st.none() | st.tuples(st.sampled_from(sorted(COMPARE)), st.floats(-1e9, 1e9)))
    suffix = draw(st.sampled_from(["", " x baseline"])) if baseline is not None else ""
    return Row(
        what=draw(texts),
        value=draw(numbers),
        unit=draw(st.sampled_from(["", "ms", "us", "x", "%"])),
        baseline=baseline,
        target=None if target is None else f"{target[0]} {target[1]!r}{suffix}",
    )


@st.composite
def some_results(draw: st.DrawFn) -> Result:
    return Result(
        name=draw(names),
        proof=draw(st.sampled_from(sorted(results.PROOFS))),
        command=draw(texts),
        commit=draw(texts),
        machine=draw(texts),
        when=draw(st.datetimes(timezones=st.timezones())).isoformat(),
        rows=tuple(draw(st.lists(rows(), min_size=1, max_size=5))),
    )


def example(**changes: Any) -> Result:
    fields: dict[str, Any] = {
        "name": "temporal",
        "proof": "gpu",
        "command": "detshare bench temporal",
        "commit": "abc1234",
        "machine": "NVIDIA H100; 16 CPUs",
        "when": "2026-01-31T12:00:00Z",
        "rows": (Row("p99 beside training", 10.4, "ms", 10.0, "<= 1.05 x baseline"), Row("launches", 3, "")),
    }
    return Result(**{**fields, **changes})


def put(folder: Path, result: Result, raw: str | None = None) -> Path:
    """A result with its raw output, as a benchmark leaves them."""
    path = results.write(result, folder)
    (folder / "raw").mkdir(exist_ok=True)
    with gzip.open(folder / "raw" / f"{raw or result.name}.jsonl.gz", "wt") as stream:
        stream.write('{"token": 1, "ms": 10.4}\n')
    return path


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_row(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text())
    document["rows"][0].update(changes)
    path.write_text(json.dumps(document))


@given(some_results())
def test_what_is_written_is_read_back_and_checks(result: Result) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), result)
        assert results.load(path) == result
        assert results.check(path) == []


@given(numbers, st.sampled_from(sorted(COMPARE)), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_ok_is_value_against_target(value: float, compare: str, bound: float, baseline: float) -> None:
    assert Row("", value, "", baseline, f"{compare} {bound!r}").ok is COMPARE[compare](value, bound)
    relative = Row("", value, "", baseline, f"{compare} {bound!r} x baseline")
    assert relative.ok is COMPARE[compare](value, bound * baseline)
    assert Row("", value, "", baseline).ok is None


@pytest.mark.parametrize(
    ("value", "baseline", "target", "ok"),
    [
        (1.05, None, "<= 1.05", True),
        (1.0500001, None, "<= 1.05", False),
        (0.98, None, ">= 0.98", True),
        (0, None, "== 0", True),
        (1, None, "== 0", False),
        (10.5, 10.0, "<= 1.05 x baseline", True),
        (10.6, 10.0, "<= 1.05 x baseline", False),
        (5, None, "<5", False),
        (1e-3, None, "> 1e-4", True),
        (7, 3, None, None),
    ],
)
def test_ok_of_known_rows(value: float, baseline: float | None, target: str | None, ok: bool | None) -> None:
    assert Row("what", value, "ms", baseline, target).ok is ok


@given(some_results(), st.data())
def test_a_tampered_ok_is_found_and_not_believed(result: Result, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), result)
        document = json.loads(path.read_text())
        index = data.draw(st.integers(0, len(result.rows) - 1))
        true = document["rows"][index]["ok"]
        lie = data.draw(st.sampled_from([True, False, None, 1, 0, "yes"]).filter(lambda lie: lie is not true))
        document["rows"][index]["ok"] = lie
        path.write_text(json.dumps(document))
        problems = results.check(path)
        assert len(problems) == 1
        assert f"row {index + 1}" in problems[0]
        assert "ok says" in problems[0]
        assert results.load(path).rows[index].ok is true


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.booleans())
def test_a_tampered_value_is_found_when_it_turns_the_verdict(bound: float, distance: float, above: bool) -> None:
    measured, claimed = (bound + distance, bound - distance) if above else (bound - distance, bound + distance)
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), example(rows=(Row("p99", measured, "ms", None, f"<= {bound!r}"),)))
        change_row(path, value=claimed)
        (problem,) = results.check(path)
        assert "row 1 (p99): ok says" in problem


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, True, "1.0", None, 10**400])
def test_write_refuses_what_is_no_number(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(ResultError, match=r"row 1 .p99.*value is"):
        results.write(example(rows=(Row("p99", bad, "ms", None, "<= 1"),)), tmp_path)
    if bad is not None:
        with pytest.raises(ResultError, match=r"row 1 .p99.*baseline is"):
            results.write(example(rows=(Row("p99", 1.0, "ms", bad, "<= 1"),)), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "target", ["", "1.05", "=< 1", "<= fast", "<= nan", "<= inf", "<= 1e999", "<= 1 x alone", "~ 1"]
)
def test_write_refuses_targets_that_mean_nothing(tmp_path: Path, target: str) -> None:
    with pytest.raises(ResultError, match=r"row 1 .p99.: target"):
        results.write(example(rows=(Row("p99", 1.0, "ms", 1.0, target),)), tmp_path)


def test_write_refuses_relative_target_without_baseline(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no baseline"):
        results.write(example(rows=(Row("p99", 1.0, "ms", None, "<= 1 x baseline"),)), tmp_path)


def test_a_refused_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = results.write(example(), tmp_path)
    before = path.read_text()
    with pytest.raises(ResultError, match="value is nan"):
        results.write(example(rows=(Row("p99", math.nan, "ms"),)), tmp_path)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"proof": "certain"}, "proof is 'certain'"),
        ({"name": "../etc/x"}, "name is '../etc/x'"),
        ({"name": 101 * "a"}, "100 at most"),
        ({"when": "yesterday"}, "no ISO 8601"),
        ({"when": "2026-01-31T12:00:00"}, "no time zone"),
        ({"commit": " "}, "commit is ' '"),
        ({"rows": ()}, "at least one row"),
    ],
)
def test_write_refuses_bad_fields(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ResultError, match=complaint):
        results.write(example(**changes), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "Expecting"),
        ("[]", "must be an object"),
        ('{"rows": NaN}', "NaN, which is not JSON"),
        ('{"name": "a", "name": "b"}', "'name' twice"),
        ("{}", "commit is missing"),
        ("[" * 100_000, "nested too deeply"),
        ('{"rows": [3]}', "row 1: is 3"),
        ('{"rows": [{"what": "p99"}]}', "row 1 (p99): value is missing"),
        ('{"rows": [], "host": "h"}', "unknown key 'host'"),
    ],
)
def test_check_says_what_is_wrong_with_a_broken_file(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "temporal.json"
    path.write_text(text)
    problems = results.check(path)
    assert any(complaint in problem for problem in problems), problems
    assert all(problem.startswith(str(path)) for problem in problems)
    with pytest.raises(ResultError):
        results.load(path)


KEYS = ["name", "proof", "command", "commit", "machine", "when", "rows", "what", "value", "target", "ok"]
leaves = st.none() | st.booleans() | st.floats() | st.text()
documents = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner))


@given(documents)
def test_check_never_falls_over(document: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "temporal.json"
        path.write_text(json.dumps(document))
        assert results.check(path)


def test_check_wants_the_file_to_be_named_like_the_result(tmp_path: Path) -> None:
    path = put(tmp_path, example())
    moved = path.rename(tmp_path / "other.json")
    assert results.check(moved) == [f"{moved}: name is 'temporal'; the file must be temporal.json"]


@pytest.mark.parametrize(("raw", "good"), [("temporal", True), ("temporal-sweep", True), ("temporally", False)])
def test_raw_output_must_be_this_results(tmp_path: Path, raw: str, good: bool) -> None:
    assert (results.check(put(tmp_path, example(), raw)) == []) is good


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip",
        gzip.compress(b""),
        gzip.compress(b"no json\n"),
        gzip.compress(b"{}\n" * 999)[:-9],
    ],
    ids=["empty", "not gzip", "no lines", "not JSON", "cut off"],  # the bytes hold the time: no name for a test
)
def test_raw_output_must_be_readable(tmp_path: Path, content: bytes) -> None:
    path = put(tmp_path, example())
    (tmp_path / "raw" / "temporal.jsonl.gz").write_bytes(content)
    assert len(results.check(path)) == 1
    assert "temporal.jsonl.gz" in results.check(path)[0]


def test_a_missing_raw_file_is_named(tmp_path: Path) -> None:
    path = results.write(example(), tmp_path)
    assert "no raw output" in results.check(path)[0]


def test_table_is_checked_against_the_files(tmp_path: Path) -> None:
    put(tmp_path, example())
    assert "missing" in results.check_folder(tmp_path)[0]
    results.write_pages(tmp_path)
    assert results.check_folder(tmp_path) == []
    put(tmp_path, example(rows=(Row("p99", 10.6, "ms", 10.0, "<= 1.05 x baseline"),)))
    assert "not up to date" in results.check_folder(tmp_path)[0]


def test_pages_mark_pass_and_fail_and_keep_their_cells(tmp_path: Path) -> None:
    made = results.pages(
        [
            example(name="b", rows=(Row("a|b\nc", 10.6, "ms", 10.0, "<= 1.05 x baseline"),)),
            example(name="a", proof="model", rows=(Row("zero", 0, "", None, "== 0"), Row("free", 1.23456, "x"))),
        ]
    )
    listed = made["README.md"]
    assert listed.index("| [a](a.md) | model | 1 of 1 | 2 |") < listed.index("| [b](b.md) | gpu | 0 of 1 | 1 |")
    assert "| a\\|b c | 10.6 | ms | 10 | <= 1.05 x baseline | **fail** |" in made["b.md"]
    assert "| zero | 0 |  |  | == 0 | pass |" in made["a.md"]
    assert "| free | 1.235 | x |  |  |  |" in made["a.md"]
    assert "- 1 of 1 targets met, 2 rows" in made["a.md"]


def test_a_page_of_no_result_is_named_and_goes(tmp_path: Path) -> None:
    put(tmp_path, example())
    results.write_pages(tmp_path)
    (tmp_path / "NOTES.md").write_text("a page of people\n")
    (tmp_path / "gone.md").write_text("a page of a result that is gone\n")
    assert results.check_folder(tmp_path) == [f"{tmp_path / 'gone.md'}: the page of no result; remove it"]
    results.write_pages(tmp_path)
    assert sorted(page.name for page in tmp_path.glob("*.md")) == ["MISSES.md", "NOTES.md", "README.md", "temporal.md"]


@pytest.mark.parametrize("arguments", [[], ["guess"], ["check", "a", "b"], ["check", "/nowhere"]])
def test_bad_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert results.main(arguments) == 2
    assert capsys.readouterr().err


def test_command_line_tables_then_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, example())
    assert results.main(["check", str(tmp_path)]) == 1
    assert results.main(["table", str(tmp_path)]) == 0
    assert results.main(["check", str(tmp_path)]) == 0
    change(path, proof="hope")
    capsys.readouterr()
    assert results.main(["table", str(tmp_path)]) == 1
    assert "proof is 'hope'" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(what: str, folder: Path) -> None:
        raise OSError(30, "Read-only file system", str(folder / "README.md"))

    monkeypatch.setattr(results, "_write_pages", refuse)
    assert results.main(["table", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{tmp_path}/README.md cannot be written (Read-only file system)\n"
