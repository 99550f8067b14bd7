# SPDX-License-Identifier: Apache-2.0
"""The page of a suite: one file of HTML without a script, from the file of cells. Works from disk, light and dark."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from detshare.tools.bench.field import timeline as timelines
from detshare.tools.bench.field.cells import failed
from detshare.tools.bench.field.programs import PROGRAMS
from detshare.tools.bench.field.suites import Suite, taking_part
from detshare.tools.bench.field.systems import ALONE, Default, Temporal, ours
from detshare.tools.bench.field.verdict import OVERHEAD, Shown, against, shown, together
from detshare.tools.bench.mix.figures import Measured, Timeline

__all__ = ["page", "table"]

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2430;--dim:#5b6675;--line:#d8dee6;--own:#0b63ce;--other:#9a5b00}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e6ebf2;--dim:#9aa7b8;--line:#2c3644;--own:#6cb2ff;--other:#f0b354}}
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--bg);color:var(--fg)}
body{font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}p,li{color:var(--dim)}.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:600}
figure{margin:1rem 0}figcaption{color:var(--dim);font-size:.9rem}a{color:var(--own)}
svg{width:100%;min-width:34rem;max-width:52rem;height:auto}svg text{fill:var(--fg);font:11px system-ui,sans-serif}
.own{fill:var(--own)}.other{fill:var(--other)}.rule{stroke:var(--line)}.goal{stroke:var(--own);stroke-dasharray:3 3}
summary{cursor:pointer}
"""


def _text(value: object) -> str:
    return html.escape(str(value))


def _table(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    first = "".join(f'<th scope="col">{_text(each)}</th>' for each in head)
    lines = "".join("<tr>" + "".join(f"<td>{_text(each)}</td>" for each in row) + "</tr>" for row in body)
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{lines}</tbody></table></div>'


def _drawn(svg: str, about: str, source: str, command: str) -> str:
    """A picture with where it comes from."""
    told = f"{_text(about)} {_from(source, command)}"
    return f'<figure><div class="wide">{svg}</div><figcaption>{told}</figcaption></figure>'


def _from(source: str, command: str) -> str:
    return f'Raw data: <a href="{_text(source)}">{_text(source)}</a>. Command: <code>{_text(command)}</code>'


def _run(suite: Suite, cells: str = "") -> str:
    """The command that measures it again."""
    return f"sudo detshare bench field run --suite {suite.name}" + (f" --cells '{cells}'" if cells else "")


def table(cells: Sequence[Measured]) -> list[dict[str, Any]]:
    """Better, equal, worse against each way, a dictionary a figure."""
    return [
        {"system": one.system, "figure": one.figure, "better": one.better, "equal": one.equal, "worse": one.worse}
        | {"loses_most": one.first}
        for one in against(shown(cells))
    ]


def _ranks(some: Sequence[Shown]) -> str:
    """A line a way, a mark a mix: p99 overhead, logarithmic from 1 to 10000 %."""
    systems = list(dict.fromkeys(each.system for each in some))
    left, width, row = 180, 560, 34
    height = row * len(systems) + 40

    def across(percent: float) -> float:
        return left + width * min(4.0, math.log10(max(1.0, percent))) / 4.0

    parts = []
    for power, name in enumerate(("1 %", "10 %", "100 %", "1000 %", "10000 %")):
        x = left + width * power / 4
        parts.append(f'<line class="rule" x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{height - 26}"/>')
        parts.append(f'<text x="{x:.0f}" y="{height - 8}" text-anchor="middle">{name}</text>')
    x = across(OVERHEAD)
    parts.append(f'<line class="goal" x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{height - 26}"/>')
    for number, system in enumerate(systems):
        y = row * number + 20
        parts.append(f'<text x="0" y="{y + 4}">{_text(system)}</text>')
        for each in some:
            if each.system == system:
                mark = "own" if ours(system) else "other"
                about = f"{each.mix}: {each.overhead:.1f} %, p99 {each.server.p99 / 1e3:.2f} ms"
                circle = f'<circle class="{mark}" cx="{across(each.overhead):.1f}" cy="{y}" r="4" opacity=".7">'
                parts.append(f"{circle}<title>{_text(about)}</title></circle>")
    what = "p99 overhead of each mix over the server alone, a line a way"
    view = f"0 0 {left + width + 40} {height}"
    return f'<svg viewBox="{view}" role="img" aria-label="{what}">{"".join(parts)}</svg>'


def _lines(cells: Sequence[Measured], suite: Suite, source: str) -> list[str]:
    """Who ran when: of the first mix that has it, under default slicing and under the temporal lane."""
    of = {(cell.mix, cell.scheme): cell.timeline for cell in cells if cell.timeline is not None}
    ways = (Default.name, Temporal.name)
    mix = next((each.name for each in suite.mixes if all((each.name, way) in of for way in ways)), None)
    if mix is None:
        return ["<h2>Who ran when</h2><p>No mix has the context-switch log of both ways.</p>"]
    parts = [
        "<h2>Who ran when</h2><p>By the GPU's context-switch log, at the end of a cell: the first mix that has it "
        "under both ways. A box is a run of a program. Clients of one MPS server, the spatial lane's too, share a "
        "context and have no time line.</p>"
    ]
    for way in ways:
        picture = timelines.svg(of[mix, way] or Timeline(1, {}), f"{mix}: {way}", taking_part(mix)[:1])
        parts.append(_drawn(picture, f"{mix} under {way}.", source, _run(suite, f"{mix}: {way}")))
    return parts


def _matrix(some: Sequence[Shown], system: str, suite: Suite) -> str:
    by_mix = {each.mix: each for each in some if each.system == system}
    if suite.given:
        found = [(mix, by_mix.get(mix.name)) for mix in suite.given]
        given = [
            (mix.label, mix.server, len(mix.backgrounds), f"{each.overhead:+.1f} %", f"{each.stp:.2f}")
            for mix, each in found
            if each is not None
        ]
        return f"<h3>{_text(system)}</h3>" + _table(("mix", "server", "others", "p99 overhead", "STP"), given)
    names = [" + ".join(backs) for backs in suite.backgrounds]
    body = []
    for server in suite.servers:
        line: list[object] = [server]
        for backs in suite.backgrounds:
            each = by_mix.get(" + ".join((server, *backs)))
            line.append("-" if each is None else f"{each.overhead:+.1f} %  {each.stp:.2f}")
        body.append(line)
    return f"<h3>{_text(system)}</h3>" + _table(["server", *names], body)


def _figures(cells: Sequence[Measured]) -> list[str]:
    """What the probes gave: a line a figure, a column a way."""
    ways = list(dict.fromkeys(cell.scheme for cell in cells if cell.figures))
    parts = []
    for probe in dict.fromkeys(cell.mix for cell in cells if cell.figures):
        of = {cell.scheme: {each.what: each for each in cell.figures} for cell in cells if cell.mix == probe}
        whats = dict.fromkeys(what for figures in of.values() for what in figures)
        body = []
        for what in whats:
            some = [of.get(way, {}).get(what) for way in ways]
            one = next(each for each in some if each is not None)
            shown_values = ("-" if each is None else f"{each.value:.4g}" for each in some)
            body.append([what, ", ".join(one.ids), one.unit, *shown_values])
        parts += [f"<h3>{_text(probe)}</h3>", _table(("figure", "ids", "unit", *ways), body)]
    notes = [(cell.cell, note) for cell in cells if cell.figures for note in cell.notes]
    return [*parts, "<h3>Notes</h3>", _table(("cell", "note"), notes)] if notes else parts


def _side(cells: Sequence[Measured]) -> list[str]:
    """Programs without a server: a line a mix, a column a way."""
    some = together(cells)
    if not some:
        return []
    ways = list(dict.fromkeys(each.system for each in some))
    stp = {(each.mix, each.system): f"{each.stp:.2f}" for each in some}
    body = [(mix, *(stp.get((mix, way), "-") for way in ways)) for mix in dict.fromkeys(each.mix for each in some)]
    return ["<h2>Side by side</h2><p>System throughput of programs without a server.</p>", _table(("mix", *ways), body)]


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
        _table(("against", "figure", "better", "equal", "worse", "ours loses most"), scores),
        f"<h2>What the server pays</h2><p>Each mark is a mix. The dashed line is {OVERHEAD:g} %.</p>",
        _drawn(_ranks(some), "", source, _run(suite)) if some else "<p>Nothing was measured beside a server.</p>",
        *_lines(cells, suite, source),
        "<h2>By mix</h2><p>p99 overhead, and system throughput.</p>",
        *(_matrix(some, system, suite) for system in systems),
    ]


def page(cells: Sequence[Measured], suite: Suite, source: str) -> str:
    """The page. `source`: the file of cells, from where the page will lie."""
    some = shown(cells)
    lost = [(cell.cell, why) for cell in cells if (why := failed(cell))]
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
        f"<h1>{_text(suite.name)}: beside the field</h1>",
        f"<p>{_text(suite.source)}. {measured} of {whole} cells of {ways} ways. "
        "A part of the matrix is a valid result.</p>",
        *([] if suite.probes else _beside(some, cells, suite, source)),
        *_side(cells),
        *(["<h2>Figures</h2>", *_figures(cells)] if any(cell.figures for cell in cells) else []),
        "<h2>What failed</h2>",
        _table(("cell", "why"), lost) if lost else "<p>No cell.</p>",
        "<h2>Programs</h2>",
        _table(("program", "stands for", "differs"), differs),
        "<h2>All cells</h2>",
        f"<p>{_from(source, _run(suite))}</p>",
        f"<details><summary>{len(all_cells)} cells</summary>{_table(head, all_cells)}</details>",
    ]
    kept = json.dumps([replace(cell, timeline=None).to_json() for cell in cells], separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    return (
        '<!doctype html>\n<!--\nSPDX-License-Identifier: Apache-2.0\n-->\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_text(suite.name)}</title><style>{STYLE}</style></head><body>{''.join(parts)}"
        f'<script type="application/json" id="cells">{kept}</script></body></html>\n'
    )
