# SPDX-License-Identifier: Apache-2.0
"""Results of measurements: docs/results/NAME.json, their raw output beside them, and the table made from them.

A row's ``ok`` is computed from its value, target and baseline each time; what a file says of it is only compared.

Targets: ``<= 1.05``, ``>= 0.98``, ``== 0``, ``< 2``, ``> 0``; with the suffix ``x baseline`` the number is a factor
on the row's baseline: ``<= 1.05 x baseline``.

Use: ``python -m detshare.tools.results check|table [DIR]`` (DIR defaults to docs/results).
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import math
import operator
import re
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detshare.tools.machine import commit, machine

__all__ = [
    "PROOFS",
    "Result",
    "ResultError",
    "Row",
    "Target",
    "check",
    "check_folder",
    "commit",
    "load",
    "load_folder",
    "machine",
    "now",
    "table",
    "write",
    "write_table",
]

PROOFS: Final = {
    "gpu": "seen on a real GPU",
    "driver": "genuine nvidia.ko in a virtual machine, no GPU",
    "model": "our simulated driver",
    "unit": "a unit or property test",
}
"""Proof levels, strongest first."""

DEFAULT_FOLDER: Final = Path("docs/results")
TABLE_NAME: Final = "README.md"

_NAME = re.compile(r"(?=.{1,100}\Z)[a-z0-9]+(?:[-_][a-z0-9]+)*")
_RESULT_KEYS: Final = ("name", "proof", "command", "commit", "machine", "when", "rows")
_ROW_KEYS: Final = ("what", "value", "unit", "baseline", "target", "ok")

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TARGET = re.compile(rf"(<=|>=|==|<|>)\s*({_NUMBER})(\s*x\s+baseline)?")
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


class ResultError(ValueError):
    """A result that may not be written or cannot be read; ``problems`` has one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Target:
    """What a value must satisfy: ``relative`` makes ``number`` a factor on the baseline."""

    compare: str
    number: float
    relative: bool

    @classmethod
    def parse(cls, text: str) -> Target:
        """Reads ``<= 1.05`` or ``<= 1.05 x baseline``; ValueError when it is neither."""
        match = _TARGET.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f'target {text!r} is not understood; write "<= 1.05", ">= 0.98", "== 0", or "<= 1.05 x baseline"'
            )
        number = float(match[2])
        if not math.isfinite(number):
            raise ValueError(f"target {text!r} holds a number too large to compare with")
        return cls(match[1], number, match[3] is not None)

    def met(self, value: float, baseline: float | None) -> bool:
        """Does the value (same unit as the baseline) satisfy it? ValueError when the baseline it needs is None."""
        if not self.relative:
            return _COMPARE[self.compare](value, self.number)
        if baseline is None:
            raise ValueError('the target is "x baseline" but the row has no baseline')
        return _COMPARE[self.compare](value, self.number * baseline)


@dataclass(frozen=True)
class Row:
    """One measured figure. ``value`` and ``baseline`` are in ``unit``; the baseline was measured in the same run."""

    what: str
    value: float
    unit: str
    baseline: float | None = None
    target: str | None = None

    @property
    def ok(self) -> bool | None:
        """Does the value meet the target? None without one. ValueError when the target cannot be applied."""
        if self.target is None:
            return None
        return Target.parse(self.target).met(self.value, self.baseline)


@dataclass(frozen=True)
class Result:
    """One experiment: ``name`` is the file's stem, ``command`` repeats it, ``when`` is ISO 8601 with its zone."""

    name: str
    proof: str
    command: str
    commit: str
    machine: str
    when: str
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))


def now() -> str:
    """This moment for ``Result.when``: UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number_problem(key: str, value: object) -> str | None:
    if not _is_number(value):
        return f"{key} is {value!r}; it must be a number"
    assert isinstance(value, int | float)
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    return None if finite else f"{key} is {value!r}; leave the row out when nothing was measured"


def _text_problems(where: str, document: dict[str, object], keys: Iterable[str]) -> list[str]:
    return [
        f"{where}: {key} is {document[key]!r}; it must be a text that is not empty"
        for key in keys
        if key in document and not (isinstance(text := document[key], str) and text.strip())
    ]


def _key_problems(where: str, document: dict[str, object], keys: tuple[str, ...]) -> list[str]:
    problems = [f"{where}: {key} is missing" for key in keys if key not in document]
    return problems + [f"{where}: unknown key {key!r}" for key in document if key not in keys]


def _row_problems(where: str, row: object, compare_ok: bool) -> list[str]:
    """Everything wrong with one row; ``compare_ok``: also that its ``ok`` is not the computed one."""
    if not isinstance(row, dict):
        return [f"{where}: is {row!r}; it must be an object with {', '.join(_ROW_KEYS)}"]
    if isinstance(row.get("what"), str):
        where = f"{where} ({row['what']})"
    problems = _key_problems(where, row, _ROW_KEYS) + _text_problems(where, row, ("what",))
    if "unit" in row and not isinstance(row["unit"], str):
        problems.append(f'{where}: unit is {row["unit"]!r}; it must be a text ("" for a plain ratio)')
    for key in ("value", "baseline"):
        if key in row and not (key == "baseline" and row[key] is None):
            problem = _number_problem(key, row[key])
            if problem:
                problems.append(f"{where}: {problem}")
    target = row.get("target")
    if target is not None and not isinstance(target, str):
        problems.append(f"{where}: target is {target!r}; it must be a text or null")
    if problems:
        return problems
    try:
        computed = Row(row["what"], row["value"], row["unit"], row["baseline"], target).ok
    except ValueError as error:
        return [f"{where}: {error}"]
    if compare_ok and row["ok"] is not computed:
        said, found = json.dumps(row["ok"]), json.dumps(computed)
        return [f"{where}: ok says {said}, but {row['value']} against target {json.dumps(target)} gives {found}"]
    return []


def _problems(where: str, document: object, compare_ok: bool) -> list[str]:
    """Everything wrong with a document, each line starting with ``where``."""
    if not isinstance(document, dict):
        return [f"{where}: must be an object with {', '.join(_RESULT_KEYS)}"]
    problems = _key_problems(where, document, _RESULT_KEYS)
    problems += _text_problems(where, document, _RESULT_KEYS[:-1])
    name, proof, when, rows = (document.get(key) for key in ("name", "proof", "when", "rows"))
    if isinstance(name, str) and name.strip() and not _NAME.fullmatch(name):
        problems.append(f"{where}: name is {name!r}; use a-z, 0-9, - and _, 100 at most, as it names a file")
    if isinstance(proof, str) and proof.strip() and proof not in PROOFS:
        problems.append(f"{where}: proof is {proof!r}; it must be one of {', '.join(PROOFS)}")
    if isinstance(when, str) and when.strip():
        try:
            if datetime.datetime.fromisoformat(when).tzinfo is None:
                problems.append(f"{where}: when is {when!r}, which has no time zone; write 2026-01-31T12:00:00Z")
        except ValueError:
            problems.append(f"{where}: when is {when!r}, which is no ISO 8601 time; write 2026-01-31T12:00:00Z")
    if "rows" in document:
        if not isinstance(rows, list) or not rows:
            problems.append(f"{where}: rows must be a list with at least one row")
        else:
            for number, row in enumerate(rows, 1):
                problems += _row_problems(f"{where}: row {number}", row, compare_ok)
    return problems


def _refuse_constant(text: str) -> float:
    raise ValueError(f"holds {text}, which is not JSON")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"has the key {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return document


def _read(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
        document: object = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_no_duplicates)
    except OSError as error:
        raise ResultError([f"{path}: cannot be read: {error.strerror}"]) from error
    except RecursionError as error:
        raise ResultError([f"{path}: is nested too deeply"]) from error
    except ValueError as error:
        raise ResultError([f"{path}: {error}"]) from error
    return document


def write(result: Result, folder: Path | str = DEFAULT_FOLDER) -> Path:
    """Writes ``folder/NAME.json`` and returns its path; ResultError (nothing written) when the result is not valid.

    A value or baseline that is NaN or infinite is refused: a row says what was measured.
    """
    rows: list[dict[str, object]] = [{**dataclasses.asdict(row), "ok": None} for row in result.rows]
    document = {**dataclasses.asdict(result), "rows": rows}
    problems = _problems(f"result {result.name!r}", document, compare_ok=False)
    if problems:
        raise ResultError(problems)
    for row, entry in zip(result.rows, rows, strict=True):
        entry["ok"] = row.ok
    path = Path(folder) / f"{result.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".json.new")
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)
    return path


def load(path: Path | str) -> Result:
    """Reads one result; the file's ``ok`` is ignored (see ``check``). ResultError when anything else is wrong."""
    path = Path(path)
    document = _read(path)
    problems = _problems(str(path), document, compare_ok=False)
    if problems:
        raise ResultError(problems)
    assert isinstance(document, dict)
    rows = tuple(Row(*(row[key] for key in _ROW_KEYS[:-1])) for row in document["rows"])
    return Result(**{**document, "rows": rows})


def _raw_problems(path: Path, name: str) -> list[str]:
    """Of the raw output: raw/NAME.jsonl.gz, or several raw/NAME-PART.jsonl.gz, each of them readable JSON lines."""
    belongs = re.compile(rf"{re.escape(name)}(?:[-_.].*)?\.jsonl\.gz")
    folder = path.parent / "raw"
    files = sorted(raw for raw in folder.glob("*.jsonl.gz") if belongs.fullmatch(raw.name))
    if not files:
        return [f"{path}: no raw output; expected {folder / name}.jsonl.gz or {folder / name}-PART.jsonl.gz"]
    problems = []
    for raw in files:
        lines = 0
        try:
            with gzip.open(raw, "rt", encoding="utf-8") as stream:
                for line in stream:
                    lines += 1
                    if lines == 1:
                        json.loads(line)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            problems.append(f"{path}: raw output {raw} is not gzipped JSON lines: {error}")
            continue
        if not lines:
            problems.append(f"{path}: raw output {raw} is empty")
    return problems


def check(path: Path | str) -> list[str]:
    """What is wrong with one file: schema, ``ok`` recomputed, file name, raw output there and readable. [] is good."""
    path = Path(path)
    try:
        document = _read(path)
    except ResultError as error:
        return error.problems
    problems = _problems(str(path), document, compare_ok=True)
    if isinstance(document, dict) and isinstance(name := document.get("name"), str) and _NAME.fullmatch(name):
        if name != path.stem:
            problems.append(f"{path}: name is {name!r}; the file must be {name}.json")
        problems += _raw_problems(path, name)
    return problems


def load_folder(folder: Path | str = DEFAULT_FOLDER) -> list[Result]:
    """All results of a folder by name; ResultError with the problems of all files that cannot be read."""
    results, problems = [], []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            results.append(load(path))
        except ResultError as error:
            problems += error.problems
    if problems:
        raise ResultError(problems)
    return results


def check_folder(folder: Path | str = DEFAULT_FOLDER) -> list[str]:
    """``check`` on every result of the folder, and that its README.md is the table made from them."""
    folder = Path(folder)
    if not folder.is_dir():
        return [f"{folder}: no such folder; name the one that holds the results"]
    problems = [problem for path in sorted(folder.glob("*.json")) for problem in check(path)]
    readme = folder / TABLE_NAME
    try:
        current = table(load_folder(folder))
    except ResultError:
        return problems  # said above, file by file
    if not readme.exists():
        problems.append(f"{readme}: missing; next: python -m detshare.tools.results table {folder}")
    elif readme.read_text(encoding="utf-8") != current:
        problems.append(f"{readme}: not up to date; next: python -m detshare.tools.results table {folder}")
    return problems


def _figure(value: float | None) -> str:
    """A number for people: whole numbers in full, others to four significant digits."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}"


def _cell(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())


_MARKS: Final = {True: "pass", False: "**fail**", None: ""}

_INTRO = """# Results

Made from the JSON files of this folder by `python -m detshare.tools.results table`; do not edit. Raw output is in
`raw/`. Pass and fail are computed from value and target; rows without a target are published for what they
are.

Each result carries its level of proof, and nothing is claimed above it:
"""


_FOLD = 60
"""a table with more rows than this is folded"""


def table(results: Iterable[Result]) -> str:
    """The Markdown page: what the proof levels mean, and one table per result with pass and fail marks."""
    lines = [_INTRO]
    lines += [f"- **{proof}**: {meaning}" for proof, meaning in PROOFS.items()]
    for result in sorted(results, key=lambda result: result.name):
        verdicts = [row.ok for row in result.rows]
        judged = [verdict for verdict in verdicts if verdict is not None]
        lines += [
            "",
            f"## {result.name} ({result.proof})",
            "",
            f"- {sum(judged)} of {len(judged)} targets met, {len(verdicts)} rows",
            f"- command: `{_cell(result.command)}`",
            f"- {_cell(result.machine)}; commit {_cell(result.commit)}; {_cell(result.when)}",
            "",
        ]
        folded = len(verdicts) > _FOLD
        lines += [f"<details><summary>{len(verdicts)} rows</summary>", ""] if folded else []
        lines += ["| what | value | unit | baseline | target | |", "| --- | ---: | --- | ---: | --- | --- |"]
        for row, verdict in zip(result.rows, verdicts, strict=True):
            cells = (_cell(row.what), _figure(row.value), _cell(row.unit), _figure(row.baseline))
            lines.append(f"| {' | '.join(cells)} | {_cell(row.target or '')} | {_MARKS[verdict]} |")
        lines += ["", "</details>"] if folded else []
    return "\n".join(lines) + "\n"


def write_table(folder: Path | str = DEFAULT_FOLDER) -> Path:
    """Writes the folder's README.md from its results and returns its path; ResultError when one cannot be read."""
    path = Path(folder) / TABLE_NAME
    text = table(load_folder(folder))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def main(arguments: list[str]) -> int:
    """The command line; returns the exit code: 0 good, 1 something is wrong with the results, 2 bad usage."""
    if len(arguments) not in (1, 2) or arguments[0] not in ("check", "table"):
        print("usage: python -m detshare.tools.results check|table [DIR]", file=sys.stderr)
        return 2
    folder = Path(arguments[1]) if len(arguments) == 2 else DEFAULT_FOLDER
    if not folder.is_dir():
        print(f"{folder}: no such folder; run this in the checkout, or name the folder", file=sys.stderr)
        return 2
    if arguments[0] == "check":
        problems = check_folder(folder)
        for problem in problems:
            print(problem, file=sys.stderr)
        print(f"results: {len(list(folder.glob('*.json')))} files in {folder}, {len(problems)} problems")
        return 1 if problems else 0
    try:
        print(write_table(folder))
    except ResultError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
