# SPDX-License-Identifier: Apache-2.0
"""One page over all suites: who is better, equal, worse against whom, no cell left out, and where ours loses first."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detshare.tools.bench.field import sections
from detshare.tools.bench.field.blocks import columns, document, drawn, origin, text
from detshare.tools.bench.field.cells import failed, plan
from detshare.tools.bench.field.pairs import counted, pairs
from detshare.tools.bench.field.policies import policed
from detshare.tools.bench.field.shown import shown
from detshare.tools.bench.field.suites import SUITES, Suite
from detshare.tools.bench.field.systems import ALONE, AUTO, ours, shipped
from detshare.tools.bench.mix.figures import Measured
from detshare.tools.bench.mix.store import load

__all__ = ["Part", "page", "parts"]

MOST = 20
"""losses that are shown without a click"""


@dataclass(frozen=True)
class Part:
    """A suite, its cells, and their file from where the page will lie; no cells: not measured."""

    suite: Suite
    cells: tuple[Measured, ...]
    source: str

    @property
    def planned(self) -> int:
        """Cells beside others under all ways that need nothing but this machine, and those that were measured."""
        ways = [*shipped(), *(policed() if self.suite.serves else ())]
        names = {cell.name for cell in plan(self.suite, ways) if cell.system != ALONE}
        return len(names | {cell.cell for cell in self.cells if cell.scheme != ALONE})


def parts(folder: Path) -> list[Part]:
    """Of all suites, from folder/raw/SUITE-cells.jsonl. CellsError, OSError."""
    found = []
    for suite in SUITES.values():
        path = folder / "raw" / f"{suite.name}-cells.jsonl"
        found.append(Part(suite, tuple(load(path)) if path.exists() else (), f"raw/{path.name}"))
    return found


def _suites(some: Sequence[Part]) -> str:
    body = []
    for part in some:
        beside = [cell for cell in part.cells if cell.scheme != ALONE]
        lost = sum(bool(failed(cell)) for cell in beside)
        told = "not measured" if not beside else f"{len(beside) - lost} of {part.planned}"
        body.append((part.suite.name, told, lost, len({cell.scheme for cell in beside})))
    return columns(("suite", "cells measured", "failed", "ways"), body)


def _scores(some: Sequence[Part], lane: str = "") -> str:
    """A line a way, suite and figure; then a line a way with the sums. Mixes that one of both has not are counted."""
    body: list[tuple[object, ...]] = []
    sums: dict[str, list[int]] = {}
    for part in some:
        for one in counted(pairs(part.cells, lane)):
            mixes = len(part.suite.mixes)
            count = one.better + one.equal + one.worse
            lacking = "" if part.suite.probes else max(0, mixes - count)
            body.append(
                (
                    one.system,
                    part.suite.name,
                    one.figure,
                    one.better,
                    one.equal,
                    one.worse,
                    lacking,
                    one.first or "nowhere",
                )
            )
            total = sums.setdefault(one.system, [0, 0, 0])
            for index, value in enumerate((one.better, one.equal, one.worse)):
                total[index] += value
        known = {one.system for one in counted(pairs(part.cells, lane))}
        for way, lost in _refused(part).items():
            if way not in known:
                body.append((way, part.suite.name, "none", 0, 0, 0, lost, "no cell could be measured"))
    body += [(way, "all", "all figures", *total, "", "") for way, total in sums.items()]
    head = ("against", "suite", "figure", "better", "equal", "worse", "not compared", "ours loses most")
    return columns(head, sorted(body, key=lambda line: (str(line[0]), line[1] == "all")))


def _refused(part: Part) -> dict[str, int]:
    """Other ways, and how many of their cells failed."""
    found: dict[str, int] = {}
    for cell in part.cells:
        if failed(cell) and not ours(cell.scheme) and cell.scheme != ALONE:
            found[cell.scheme] = found.get(cell.scheme, 0) + 1
    return found


def _losses(some: Sequence[Part]) -> list[str]:
    """Where ours is worse, the greatest first."""
    found = [(part.suite.name, each) for part in some for each in pairs(part.cells) if each.worse]
    found.sort(key=lambda one: -one[1].loss)
    head = ("suite", "mix or figure", "figure", "against", "our way", "by")
    body = [(suite, each.mix, each.figure, each.system, each.mine, f"{100 * each.loss:.0f} %") for suite, each in found]
    if not body:
        return ["<p>Nowhere, in what was measured.</p>"]
    rest = f"<details><summary>{len(body) - MOST} more</summary>{columns(head, body[MOST:])}</details>"
    return [columns(head, body[:MOST]), *([rest] if len(body) > MOST else [])]


def _picture(picture: Path | None) -> list[str]:
    """README's, as it is there."""
    if picture is None:
        return []
    data = base64.b64encode(picture.read_bytes()).decode("ascii")
    image = f'<img alt="latency of each request beside three programs" src="data:image/svg+xml;base64,{data}">'
    told = "A server of 1.5-ms requests beside three programs, on an H200: README's picture."
    return ["<h2>Request by request</h2>", drawn(image, told, "raw/mix.jsonl.gz", "sudo detshare bench mix")]


def _plots(part: Part) -> list[str]:
    some = shown(part.cells)
    head = f"<h2>{text(part.suite.name)}</h2><p>{text(part.suite.source)}.</p>"
    if not any(cell.scheme != ALONE for cell in part.cells):
        told = f"<p>Not measured. Command: <code>{text(sections.command(part.suite))}</code></p>"
        return [head, told]
    return [
        head,
        f"<p>{origin(part.source, sections.command(part.suite))}</p>",
        *([sections.marks(some, part.suite, part.source)] if some else []),
        *(sections.lines(part.cells, part.suite, part.source) if not part.suite.probes else []),
        *sections.side(part.cells),
        *(sections.figures(part.cells) if any(cell.figures for cell in part.cells) else []),
        sections.failures(part.cells),
    ]


def page(some: Sequence[Part], picture: Path | None = None) -> str:
    """The page. `picture`: README's, which `make screenshots` draws from the published mix."""
    ways = list(dict.fromkeys(c.scheme for part in some for c in part.cells if ours(c.scheme)))
    each = [f"<h3>{text(way)}</h3>{_scores(some, way)}" for way in ways]
    body = [
        "<h1>Beside the field</h1>",
        "<p>Published workloads under other ways to share a GPU and under DetShare, on the same GPU in the same run. "
        "A part of the matrix is a valid result; what was not measured is said.</p>",
        _suites(some),
        "<h2>Better, equal, worse</h2><p>DetShare's better way of each mix, chosen afterwards and never "
        f"<code>{AUTO}</code>, against each other way. p99 and probes within 5 %, throughput and goodput within 2 % "
        "are equal. A mix that one of both did not finish is not compared, and counted as such.</p>",
        _scores(some),
        *([f"<details><summary>each way of ours by itself</summary>{''.join(each)}</details>"] if each else []),
        "<h2>Where ours loses first</h2><p>p99: how much later than theirs; all else: what part of the greater figure "
        "is missing.</p>",
        *_losses(some),
        *_picture(picture),
        *(line for part in some for line in _plots(part)),
    ]
    return document("Beside the field", body)
