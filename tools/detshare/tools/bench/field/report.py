# SPDX-License-Identifier: Apache-2.0
"""The page of a suite: one file of HTML without a script, from the file of cells. Works from disk, light and dark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from detshare.tools.bench.field.blocks import columns, document, origin, text
from detshare.tools.bench.field.pairs import against
from detshare.tools.bench.field.programs import PROGRAMS
from detshare.tools.bench.field.sections import command, failures, figures, lines, marks, matrix, side
from detshare.tools.bench.field.shown import Shown, shown, together
from detshare.tools.bench.field.suites import Suite, taking_part
from detshare.tools.bench.field.systems import ALONE
from detshare.tools.bench.mix.figures import Measured

__all__ = ["page", "table"]


def table(cells: Sequence[Measured]) -> list[dict[str, Any]]:
    """Better, equal, worse against each way, a dictionary a figure."""
    return [
        {"system": one.system, "figure": one.figure, "better": one.better, "equal": one.equal, "worse": one.worse}
        | {"loses_most": one.first}
        for one in against(shown(cells))
    ]


def _beside(some: Sequence[Shown], cells: Sequence[Measured], suite: Suite, source: str) -> list[str]:
    """What was measured beside servers."""
    systems = list(dict.fromkeys(each.system for each in some))
    scores = [
        (one["system"], one["figure"], one["better"], one["equal"], one["worse"], one["loses_most"] or "nowhere")
        for one in table(cells)
    ]
    return [
        "<h2>Better, equal, worse</h2><p>DetShare's better lane of each mix against each other way. p99 within 5 % and "
        "throughput within 2 % are equal.</p>",
        columns(("against", "figure", "better", "equal", "worse", "ours loses most"), scores),
        "<h2>What the server pays</h2>",
        marks(some, suite, source) if some else "<p>Nothing was measured beside a server.</p>",
        *lines(cells, suite, source),
        "<h2>By mix</h2><p>p99 overhead, and system throughput.</p>",
        *(matrix(some, system, suite) for system in systems),
    ]


def page(cells: Sequence[Measured], suite: Suite, source: str) -> str:
    """The page. `source`: the file of cells, from where the page will lie."""
    some = shown(cells)
    told = any(each.changed is not None for each in some)
    all_cells = [
        (
            each.mix,
            each.system,
            f"{each.alone.p99 / 1e3:.3f}",
            f"{each.server.p50 / 1e3:.3f}",
            f"{each.server.p99 / 1e3:.3f}",
            "" if each.server.p999 is None else f"{each.server.p999 / 1e3:.3f}",
            each.server.count,
            " ".join(f"{part:.2f}" for part in each.progress.values()),
            f"{each.stp:.2f}",
            f"{each.fairness:.2f}",
            *([] if not told else ["-" if each.changed is None else each.changed]),
        )
        for each in some
    ]
    used = dict.fromkeys(name for cell in cells for name in taking_part(cell.mix))
    differs = [(name, PROGRAMS[name].stands, PROGRAMS[name].differs) for name in used if name in PROGRAMS]
    head = ["mix", "way", "alone p99 ms", "p50 ms", "p99 ms", "p99.9 ms", "requests", "work of alone", "STP", "Jain"]
    head += ["changed"] if told else []
    both = together(cells)
    systems = list(dict.fromkeys([*(each.system for each in some), *(each.system for each in both)]))
    measured, ways = len(some) + len(both), len(systems)
    whole = len(suite.mixes) * ways
    if suite.probes:
        by_way = {cell.scheme for cell in cells if cell.figures and cell.scheme != ALONE}
        measured, ways = sum(bool(cell.figures) and cell.scheme != ALONE for cell in cells), len(by_way)
        whole = len(suite.probes) * ways
    parts = [
        f"<h1>{text(suite.name)}: beside the field</h1>",
        f"<p>{text(suite.source)}. {measured} of {whole} cells of {ways} ways. "
        "A part of the matrix is a valid result.</p>",
        *([] if suite.probes else _beside(some, cells, suite, source)),
        *side(cells),
        *(["<h2>Figures</h2>", *figures(cells)] if any(cell.figures for cell in cells) else []),
        failures(cells),
        "<h2>Programs</h2>",
        columns(("program", "stands for", "differs"), differs),
        "<h2>All cells</h2>",
        f"<p>{origin(source, command(suite))}</p>",
        f"<details><summary>{len(all_cells)} cells</summary>{columns(head, all_cells)}</details>",
    ]
    kept = json.dumps([replace(cell, timeline=None).to_json() for cell in cells], separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    parts.append(f'<script type="application/json" id="cells">{kept}</script>')
    return document(suite.name, parts)
