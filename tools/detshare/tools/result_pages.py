# SPDX-License-Identifier: Apache-2.0
"""The pages that are made from results: their list, one for each, missed targets, and those older than the sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from detshare.tools import provenance

if TYPE_CHECKING:
    from detshare.tools.results import Result, Row


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

_INTRO: Final = """# Results

Made from the JSON files of this folder by `python -m detshare.tools.results table`; do not edit. Each result has a
page with all its rows. Raw output is in `raw/`. Rows without a target are published for what they are.

[MISSES.md](MISSES.md) lists every missed target, [STALE.md](STALE.md) the results that are older than the sources they
measure, [NOTES.md](NOTES.md) how they came about and which bounds moved.

Each result carries its level of proof, and nothing is claimed above it:
"""


def table(results: Iterable[Result], proofs: Mapping[str, str]) -> str:
    """The list of all results: what the proof levels mean, and a line for each."""
    lines = [_INTRO, *(f"- **{proof}**: {meaning}" for proof, meaning in proofs.items()), ""]
    lines += ["| result | level | targets met | rows | machine | commit |", "| --- | --- | ---: | ---: | --- | --- |"]
    for result in sorted(results, key=lambda result: result.name):
        machine = _cell(result.machine.partition(";")[0])
        cells = (f"[{result.name}]({result.name}.md)", result.proof, _met(result), str(len(result.rows)), machine)
        lines.append(f"| {' | '.join(cells)} | {_cell(result.commit)} |")
    return "\n".join(lines) + "\n"


def _met(result: Result) -> str:
    judged = [row.ok for row in result.rows if row.ok is not None]
    return f"{sum(judged)} of {len(judged)}"


def page(result: Result) -> str:
    """The page of one result: where it is from, and its rows with pass and fail marks."""
    lines = [
        f"# {result.name} ({result.proof})",
        "",
        f"Made from {result.name}.json by `python -m detshare.tools.results table`; do not edit.",
        "",
        f"- {_met(result)} targets met, {len(result.rows)} rows",
        f"- command: `{_cell(result.command)}`",
        f"- {_cell(result.machine)}; commit {_cell(result.commit)}; {_cell(result.when)}",
        f"- measures {_measures(result)}",
        "",
        "| what | value | unit | baseline | target | |",
        "| --- | ---: | --- | ---: | --- | --- |",
    ]
    lines += [f"| {_row(row)} | {_MARKS[row.ok]} |" for row in result.rows]
    return "\n".join(lines) + "\n"


def _measures(result: Result) -> str:
    """The paths with their hashes, short."""
    told = (f"`{path}` {hash_[:10]}" for path, hash_ in result.measures.items())
    return ", ".join(told) or f"{', '.join(f'`{path}`' for path in provenance.paths(result.name))}, hash unknown"


_MISSES: Final = """# Missed targets

Made from the JSON files of this folder by `python -m detshare.tools.results table`; do not edit. A row is a target of a
published result that its value does not meet. Bounds that moved after a miss are in
[NOTES.md](NOTES.md#bounds-that-moved-after-a-miss), with the old rows.

"""


def misses(results: Iterable[Result]) -> str:
    """The page of all rows that do not meet their targets."""
    found = sorted(results, key=lambda result: result.name)
    judged = [row for result in found for row in result.rows if row.ok is not None]
    missed = [(result, row) for result in found for row in result.rows if row.ok is False]
    of = len({result.name for result, _ in missed})
    lines = [f"{len(missed)} of {len(judged)} targets are missed, in {of} of {len(found)} results.", ""]
    lines += ["| result | level | what | value | unit | baseline | target |"]
    lines += ["| --- | --- | --- | ---: | --- | ---: | --- |"]
    lines += [f"| {result.name} | {result.proof} | {_row(row)} |" for result, row in missed]
    return _MISSES + "\n".join(lines) + "\n"


def _row(row: Row) -> str:
    cells = (_cell(row.what), _figure(row.value), _cell(row.unit), _figure(row.baseline), _cell(row.target or ""))
    return " | ".join(cells)


_STALE: Final = """# Results that are older than the sources they measure

Made by `python -m detshare.tools.results stale`; do not edit. A result is **older** where git's hash of a path that it
measures is another one in the commit named below; moving a file counts. `make lint` says which ones are older today.
**unknown**: the tree was never committed, or this history has not got the commit.

"""
_NAMED: Final = re.compile(r"^\| ([a-z0-9_-]+) \| (?:current|\*\*older\*\*|\*\*unknown\*\*)", re.MULTILINE)


def stale(results: Iterable[Result]) -> str:
    """The page of what each result measures and whether that changed."""
    lines = [f"State at commit {provenance.ask_head() or 'unknown'}.", ""]
    lines += ["| result | state | level | measured at | lines added and taken away since |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for result in sorted(results, key=lambda result: result.name):
        state = provenance.state(result.measures)
        said = state if state == provenance.CURRENT else f"**{state}**"
        lines.append(f"| {result.name} | {said} | {result.proof} | {_cell(result.commit)} | {_changes(result)} |")
    return _STALE + "\n".join(lines) + "\n"


def named(page: str) -> list[str]:
    """The results that such a page names."""
    return _NAMED.findall(page)


def _changes(result: Result) -> str:
    parts = []
    for path in provenance.paths(result.name):
        lines = provenance.lines_changed(result.commit, path)
        parts.append(f"`{path}` {f'+{lines[0]} -{lines[1]}' if lines else 'unknown'}")
    return ", ".join(parts)
