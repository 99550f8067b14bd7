# SPDX-License-Identifier: Apache-2.0
"""The pages that are made from results: the table, the missed targets, and which results are older than the sources."""

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

_INTRO = """# Results

Made from the JSON files of this folder by `python -m detshare.tools.results table`; do not edit. Raw output is in
`raw/`. Pass and fail are computed from value and target; rows without a target are published for what they
are.

[MISSES.md](MISSES.md) lists every missed target, [STALE.md](STALE.md) the results that are older than the sources they
measure, [NOTES.md](NOTES.md) how they came about and which bounds moved.

Each result carries its level of proof, and nothing is claimed above it:
"""


_FOLD = 60
"""a table with more rows than this is folded"""


def table(results: Iterable[Result], proofs: Mapping[str, str]) -> str:
    """The Markdown page: what the proof levels mean, and one table per result with pass and fail marks."""
    lines = [_INTRO]
    lines += [f"- **{proof}**: {meaning}" for proof, meaning in proofs.items()]
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
            f"- measures {_measures(result)}",
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
