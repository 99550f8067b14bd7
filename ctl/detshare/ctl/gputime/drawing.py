# SPDX-License-Identifier: Apache-2.0
"""A time line as SVG: a lane for each program, time to the right. Whatever its length, it is some hundred kilobytes.

A column of the picture is a pixel; how high it is filled says in which part of that time the program had the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from detshare.ctl.core.gputime import Run
from detshare.ctl.gputime.lanes import Lane, lanes, summed, switches
from detshare.ctl.gputime.meter import RESTORE_NS
from detshare.ctl.gputime.recording import GpuRecord, Recording

COLUMNS: Final = 1000
LEFT: Final = 236
"""width of the lanes' names"""
_RIGHT: Final = 24
_HIGH: Final = 30
"""of a full lane"""
_STEP: Final = 42
_TOP: Final = 48
_MOST_LANES: Final = 24
"""of all GPUs together, those with the most time; the others are one lane"""
_COLOURS: Final = ("#4477aa", "#cc5566", "#228833", "#b8a02a", "#3aa6c4", "#aa3377", "#dd6f2c", "#009988")
_STYLE: Final = """
.page { fill: #ffffff } .grid { stroke: #d8d8d8; stroke-width: 1 } .base { stroke: #a0a0a0; stroke-width: 1 }
text { fill: #202020; font: 13px ui-sans-serif, system-ui, sans-serif } .small { font-size: 11px; fill: #606060 }
.title { font-weight: 600 } .restore { fill: #202020; fill-opacity: 0.55 } .switch { fill: #8a8a8a }
@media (prefers-color-scheme: dark) {
.page { fill: #14171a } .grid { stroke: #33383d } .base { stroke: #60666c }
text { fill: #e6e6e6 } .small { fill: #a0a6ac } .restore { fill: #ffffff } .switch { fill: #9a9a9a }
}
"""


def shares(runs: Iterable[Run], begin_ns: int, end_ns: int, count: int = COLUMNS) -> list[float]:
    """For each of `count` equal parts of a time, which share of it, 0..1, the runs take. They do not overlap."""
    found = [0.0] * count
    width = (end_ns - begin_ns) / count
    if width <= 0:
        return found
    for run in runs:
        first, last = (max(run.start_ns, begin_ns) - begin_ns) / width, (min(run.end_ns, end_ns) - begin_ns) / width
        for column in range(max(int(first), 0), min(math.ceil(last), count)):
            found[column] += max(min(last, column + 1) - max(first, column), 0.0)
    return [min(share, 1.0) for share in found]


def skyline(filled: Sequence[float], base: int, high: int = _HIGH) -> str:
    """The path that fills each column from `base` up to its share of `high`, where there is any by a pixel at least."""
    tops = [0 if share <= 0 else max(round(share * high), 1) for share in filled]
    parts, before = [], 0
    for column, top in enumerate([*tops, 0]):
        if top == before:
            continue
        x = LEFT + column
        parts.append(f"M{x} {base}V{base - top}" if not before else f"H{x}V{base - top}")
        if not top:
            parts.append("Z")
        before = top
    return "".join(parts)


def ticks(length_ns: int, most: int = 10) -> tuple[list[int], float, str]:
    """Marks of an axis from 0 to `length_ns`: at 1, 2 or 5 times a power of ten; divisor and unit of their labels."""
    step = 1
    while length_ns // step > most:
        step = next(s for s in (s * 10**p for p in range(19) for s in (1, 2, 5)) if s > step)
    divisor, unit = next(((d, u) for d, u in ((1e9, "s"), (1e6, "ms"), (1e3, "us")) if step >= d / 10), (1.0, "ns"))
    return list(range(0, length_ns + 1, step)), divisor, unit


def _text(text: str, most: int = 0) -> str:
    """For XML, which knows no control characters."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return escape(shown if not most or len(shown) <= most else shown[: most - 1] + "…")


def _chosen(gpu: GpuRecord, most: int) -> tuple[list[Lane], list[Run]]:
    """The lanes to draw, and the runs of all others."""
    every = lanes(gpu)
    kept = sorted(sorted(every, key=lambda lane: -lane.share)[:most], key=lambda lane: lane.pid or 0)
    others = sorted((run for lane in every if lane not in kept for run in lane.runs), key=lambda run: run.start_ns)
    return kept, others


def _lane(name: str, lane: Lane, gpu: GpuRecord, y: int, paint: str, *, restores: bool) -> Iterator[str]:
    base = y + _HIGH
    told = f"{lane.share:.1%}, {lane.runs_s:.0f}/s of {lane.run_us / 1e3:.3g} ms"
    yield f"<g><title>{_text(name)}: {lane.share:.2%} of the time, {lane.runs_s:.1f} runs a second</title>"
    yield f'<text x="12" y="{y + 13}">{_text(name, 30)}</text>'
    yield f'<text class="small" x="12" y="{y + 27}">{told}</text>'
    yield f'<path class="base" d="M{LEFT} {base}h{COLUMNS}"/>'
    yield f'<path {paint} d="{skyline(shares(lane.runs, gpu.begin_ns, gpu.end_ns), base)}"/>'
    if restores:
        yield f'<path class="restore" d="{skyline(shares(lane.restores, gpu.begin_ns, gpu.end_ns), base)}"/>'
    yield "</g>"


def _gpu(recording: Recording, gpu: GpuRecord, begin_s: float, y: int, most: int) -> tuple[list[str], int]:
    """The block of a GPU, and where it ends."""
    lines = [f'<text class="title" x="12" y="{y + 4}">GPU {gpu.minor} {_text(gpu.name)}</text>']
    if gpu.dropped:
        lines.append(f'<text class="small" x="{LEFT}" y="{y + 4}">{gpu.dropped} records were lost</text>')
    top, y = y + 12, y + 18
    body: list[str] = []
    kept, others = _chosen(gpu, most)
    for number, lane in enumerate(kept):
        pid = lane.pid or 0
        name = f"{recording.name(pid)} ({pid})" if recording.name(pid) else f"PID {pid}"
        body += _lane(name, lane, gpu, y, f'fill="{_COLOURS[number % len(_COLOURS)]}"', restores=True)
        y += _STEP
    if others:
        body += _lane("other programs", summed(None, others, gpu), gpu, y, 'fill="#777777"', restores=False)
        y += _STEP
    body += _lane("switches", switches(gpu), gpu, y, 'class="switch"', restores=False)
    y += _STEP
    marks, divisor, unit = ticks(gpu.end_ns - gpu.begin_ns)
    for mark in marks:
        x = LEFT + round(mark / max(gpu.end_ns - gpu.begin_ns, 1) * COLUMNS)
        lines.append(f'<path class="grid" d="M{x} {top}V{y}"/>')
        label = f"{(begin_s * 1e9 + mark) / divisor:.6g}"
        lines.append(f'<text class="small" x="{x}" y="{y + 14}" text-anchor="middle">{label}</text>')
    lines.append(f'<text class="small" x="{LEFT - 12}" y="{y + 14}" text-anchor="end">{unit}</text>')
    return lines + body, y + 44


def _legend(y: int) -> list[str]:
    def sample(x: int, paint: str, text: str) -> str:
        words = f'<text class="small" x="{x + 20}" y="{y}">{text}</text>'
        return f'<rect {paint} x="{x}" y="{y - 10}" width="14" height="10"/>{words}'

    return [
        sample(12, f'fill="{_COLOURS[0]}"', "a program has the GPU; a column's height: in which part of that time"),
        sample(430, 'class="restore"', f"its context is restored ({RESTORE_NS / 1e6:g} ms of each run, by the H200)"),
        sample(850, 'class="switch"', "the GPU switches: nobody has it"),
    ]


def svg(recording: Recording, begin_s: float = 0.0, length_s: float | None = None) -> str:
    """The picture of a recording, or of `length_s` seconds of it from `begin_s` on."""
    most = max(_MOST_LANES // max(len(recording.gpus), 1), 3)
    y, body = _TOP, list[str]()
    for gpu in recording.gpus:
        lines, y = _gpu(recording, gpu.window(begin_s, length_s), begin_s, y + 12, most)
        body += lines
    width, height = LEFT + COLUMNS + _RIGHT, y + 24
    proof = "" if recording.proof == "gpu" else f", proof level {_text(recording.proof)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{width}" height="{height}"/>',
            f'<text class="title" x="12" y="26">Who has the GPU when (driver {_text(recording.driver)}{proof})</text>',
            *body,
            *_legend(y),
            "</svg>\n",
        ]
    )
