# SPDX-License-Identifier: Apache-2.0
"""Parts of the field's pages, each of one suite's cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from detshare.tools.bench.field import timeline as timelines
from detshare.tools.bench.field.blocks import columns, drawn, text
from detshare.tools.bench.field.cells import failed
from detshare.tools.bench.field.shown import Shown, together
from detshare.tools.bench.field.suites import Suite, taking_part
from detshare.tools.bench.field.systems import Default, Temporal, ours
from detshare.tools.bench.field.verdict import OVERHEAD
from detshare.tools.bench.mix.figures import Measured, Timeline

__all__ = ["command", "failures", "figures", "lines", "marks", "matrix", "side"]


def command(suite: Suite, cells: str = "") -> str:
    """The command that measures it again."""
    return f"sudo detshare bench field run --suite {suite.name}" + (f" --cells '{cells}'" if cells else "")


def marks(some: Sequence[Shown], suite: Suite, source: str) -> str:
    """What the server of each mix pays."""
    about = f"p99 over alone; each mark is a mix. The dashed line is {OVERHEAD:g} %."
    return drawn(_ranks(some), about, source, command(suite))


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
        parts.append(f'<text x="0" y="{y + 4}">{text(system)}</text>')
        for each in some:
            if each.system == system:
                mark = "own" if ours(system) else "other"
                about = f"{each.mix}: {each.overhead:.1f} %, p99 {each.server.p99 / 1e3:.2f} ms"
                circle = f'<circle class="{mark}" cx="{across(each.overhead):.1f}" cy="{y}" r="4" opacity=".7">'
                parts.append(f"{circle}<title>{text(about)}</title></circle>")
    what = "p99 overhead of each mix over the server alone, a line a way"
    view = f"0 0 {left + width + 40} {height}"
    return f'<svg viewBox="{view}" role="img" aria-label="{what}">{"".join(parts)}</svg>'


def lines(cells: Sequence[Measured], suite: Suite, source: str) -> list[str]:
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
        parts.append(drawn(picture, f"{mix} under {way}.", source, command(suite, f"{mix}: {way}")))
    return parts


def matrix(some: Sequence[Shown], system: str, suite: Suite) -> str:
    """One way: a line a server."""
    by_mix = {each.mix: each for each in some if each.system == system}
    if suite.given:
        found = [(mix, by_mix.get(mix.name)) for mix in suite.given]
        given = [
            (mix.label, mix.server, len(mix.backgrounds), f"{each.overhead:+.1f} %", f"{each.stp:.2f}")
            for mix, each in found
            if each is not None
        ]
        return f"<h3>{text(system)}</h3>" + columns(("mix", "server", "others", "p99 overhead", "STP"), given)
    names = [" + ".join(backs) for backs in suite.backgrounds]
    body = []
    for server in suite.servers:
        line: list[object] = [server]
        for backs in suite.backgrounds:
            each = by_mix.get(" + ".join((server, *backs)))
            line.append("-" if each is None else f"{each.overhead:+.1f} %  {each.stp:.2f}")
        body.append(line)
    return f"<h3>{text(system)}</h3>" + columns(["server", *names], body)


def figures(cells: Sequence[Measured]) -> list[str]:
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
        parts += [f"<h3>{text(probe)}</h3>", columns(("figure", "ids", "unit", *ways), body)]
    notes = [(cell.cell, note) for cell in cells if cell.figures for note in cell.notes]
    return [*parts, "<h3>Notes</h3>", columns(("cell", "note"), notes)] if notes else parts


def side(cells: Sequence[Measured]) -> list[str]:
    """Programs without a server: a line a mix, a column a way."""
    some = together(cells)
    if not some:
        return []
    ways = list(dict.fromkeys(each.system for each in some))
    stp = {(each.mix, each.system): f"{each.stp:.2f}" for each in some}
    body = [(mix, *(stp.get((mix, way), "-") for way in ways)) for mix in dict.fromkeys(each.mix for each in some)]
    return [
        "<h2>Side by side</h2><p>System throughput of programs without a server.</p>",
        columns(("mix", *ways), body),
    ]


def failures(cells: Sequence[Measured]) -> str:
    """Cells that could not be measured, and why: that is their result."""
    lost = [(cell.cell, why) for cell in cells if (why := failed(cell))]
    return "<h3>What failed</h3>" + (columns(("cell", "why"), lost) if lost else "<p>No cell.</p>")
