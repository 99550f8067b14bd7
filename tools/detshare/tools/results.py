# SPDX-License-Identifier: Apache-2.0
"""Results of measurements: docs/results/NAME.json, their raw output beside them, and the table made from them.

A row's ``ok`` is computed from its value, target and baseline each time; what a file says of it is only compared.

Targets: ``<= 1.05``, ``>= 0.98``, ``== 0``, ``< 2``, ``> 0``; with the suffix ``x baseline`` the number is a factor
on the row's baseline: ``<= 1.05 x baseline``.

A result carries git's hash of what it measures (``measures``, by ``detshare.tools.provenance``), so that readers see
which ones are older than the sources are.

Use: ``detshare results check|table|stale|measures [DIR]`` (DIR defaults to docs/results). ``table``
writes README.md, MISSES.md and a page for each result, ``stale`` STALE.md; ``measures`` adds the hashes to results
that have none.
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from detshare.tools import provenance, result_pages
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
    "fill_measures",
    "load",
    "load_folder",
    "machine",
    "now",
    "pages",
    "write",
    "write_pages",
]

PROOFS: Final = {
    "gpu": "seen on a real GPU",
    "gpu, forwarded": "the module in a virtual machine whose driver calls are forwarded to a real GPU",
    "driver": "genuine nvidia.ko in a virtual machine, no GPU",
    "model": "our simulated driver",
    "unit": "a unit or property test",
}
"""Proof levels, strongest first."""

DEFAULT_FOLDER: Final = Path("docs/results")
TABLE_NAME: Final = "README.md"
MISSES_NAME: Final = "MISSES.md"
STALE_NAME: Final = "STALE.md"
WAYS: Final = ("check", "table", "stale", "measures")

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
    measures: Mapping[str, str] = field(default_factory=dict, compare=False)
    """path -> git's hash of it; filled by ``write`` from the commit, empty where the history has not got that"""

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
    problems = _key_problems(where, {key: document[key] for key in document if key != "measures"}, _RESULT_KEYS)
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
    measures = document.get("measures", {})
    if not isinstance(measures, dict) or not all(isinstance(text, str) and text for text in measures.values()):
        problems.append(f"{where}: measures is {measures!r}; it must be an object of path and hash")
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
    document: dict[str, object] = {key: getattr(result, key) for key in _RESULT_KEYS[:-1]}
    measures = dict(result.measures) or provenance.hashes(result.name, result.commit)
    document |= {"measures": measures} if measures else {}
    document["rows"] = rows
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
        if str(document.get("commit", "")).endswith("-dirty"):
            problems.append(f"{path}: commit is {document['commit']}, a tree that nobody has; commit and measure anew")
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
    """``check`` on every result of the folder, and that its pages are made from them."""
    folder = Path(folder)
    if not folder.is_dir():
        return [f"{folder}: no such folder; name the one that holds the results"]
    problems = [problem for path in sorted(folder.glob("*.json")) for problem in check(path)]
    try:
        found = load_folder(folder)
    except ResultError:
        return problems  # said above, file by file
    made = pages(found)
    for name, current in made.items():
        page = folder / name
        if not page.exists():
            problems.append(f"{page}: missing; next: python -m detshare.tools.results table {folder}")
        elif page.read_text(encoding="utf-8") != current:
            problems.append(f"{page}: not up to date; next: python -m detshare.tools.results table {folder}")
    problems += [f"{page}: the page of no result; remove it" for page in _pages(folder) if page.name not in made]
    # which results are old depends on the commit: the page says for which one it was made, and is held to its names
    stale = folder / STALE_NAME
    names = sorted(result.name for result in found)
    if stale.exists() and result_pages.named(stale.read_text(encoding="utf-8")) != names:
        problems.append(f"{stale}: names other results; next: python -m detshare.tools.results stale {folder}")
    return problems


def pages(results: Iterable[Result]) -> dict[str, str]:
    """The Markdown pages that follow from results, by file name: their list, the missed targets, one for each."""
    found = list(results)
    each = {f"{result.name}.md": result_pages.page(result) for result in found}
    return {TABLE_NAME: result_pages.table(found, PROOFS), MISSES_NAME: result_pages.misses(found)} | each


def _pages(folder: Path) -> list[Path]:
    """Pages of single results: names of results are in small letters, those of other pages are not."""
    return [page for page in folder.glob("*.md") if page.stem.islower()]


def write_pages(folder: Path | str = DEFAULT_FOLDER) -> Path:
    """Writes the folder's pages and returns the path of their list; ResultError when a result cannot be read."""
    folder = Path(folder)
    found = load_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = pages(found)
    for page in _pages(folder):
        if page.name not in made:
            page.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / TABLE_NAME


def fill_measures(folder: Path | str = DEFAULT_FOLDER) -> list[Path]:
    """Adds the hashes to results that have none, where this history has their commits; returns what it wrote."""
    return [write(result, folder) for result in load_folder(folder) if not result.measures and _measured(result)]


def _measured(result: Result) -> dict[str, str]:
    return provenance.hashes(result.name, result.commit)


def main(arguments: list[str]) -> int:
    """The command line; returns the exit code: 0 good, 1 something is wrong with the results, 2 bad usage."""
    if len(arguments) not in (1, 2) or arguments[0] not in WAYS:
        print(f"usage: detshare results {'|'.join(WAYS)} [DIR]", file=sys.stderr)
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
        return 1 if problems else _tell_states(folder)
    try:
        _write_pages(arguments[0], folder)
    except ResultError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"{error.filename} cannot be written ({error.strerror})", file=sys.stderr)
        return 1
    return 0


@click.command("results", epilog="Example: detshare results check")
@click.argument("what", type=click.Choice(WAYS))
@click.argument("folder", required=False)
def command(what: str, folder: str | None) -> None:
    """Check the results of a checkout and say which are older than what they measure, or write their pages."""
    sys.exit(main([what] if folder is None else [what, folder]))


def _tell_states(folder: Path) -> int:
    """Information: the code goes on, and a result that is older than it is no error."""
    found = load_folder(folder)
    for state in (provenance.OLDER, provenance.UNKNOWN):
        names = [result.name for result in found if provenance.state(result.measures) == state]
        if names:
            print(f"results: {state}, {len(names)} of {len(found)}: {' '.join(names)}")
    return 0


def _write_pages(what: str, folder: Path) -> None:
    """What a command other than check does; it says what it wrote."""
    if what == "measures":
        for path in fill_measures(folder):
            print(path)
    elif what == "stale":
        path = folder / STALE_NAME
        path.write_text(result_pages.stale(load_folder(folder)), encoding="utf-8")
        print(path)
    else:
        print(write_pages(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
