# SPDX-License-Identifier: Apache-2.0
"""The picture of each request's latency in a mix, from the raw output of `detshare bench mix`: `make screenshots`.

Example: python -m detshare.tools.mix_picture docs/results docs/images
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

__all__ = ["NAME", "STRIPS", "Strip", "main", "strips", "svg"]

NAME: Final = "mix-latency.svg"
MIX: Final = "graph + vit + gpt2 + fft"
STRIPS: Final = {
    "default slicing": "default slicing",
    "MPS with client priority": "MPS, client priority",
    "MPS with shares": "MPS, shares of SMs",
    "DetShare 1:1:1": "DetShare: high, low, low, low",
}
"""scheme of the mix -> what the picture calls it"""
SECONDS: Final = 5.0
MOST_MS: Final = 10.0
_LEFT, _WIDE, _HIGH, _STEP, _TOP = 226, 600, 54, 74, 58
_STYLE: Final = """
.page { fill: #ffffff } .base { stroke: #a0a0a0 } .alone { stroke: #228833; stroke-dasharray: 4 3 }
text { fill: #202020; font: 13px ui-sans-serif, system-ui, sans-serif } .small { font-size: 11px; fill: #606060 }
.title { font-weight: 600 } .others { fill: #cc5566 } .ours { fill: #4477aa }
@media (prefers-color-scheme: dark) {
.page { fill: #14171a } .base { stroke: #60666c } text { fill: #e6e6e6 } .small { fill: #a0a6ac }
}
"""


@dataclass(frozen=True)
class Strip:
    """One scheme: requests as (seconds from its begin, latency in ms) of its first seconds, and the p99 of all."""

    scheme: str
    requests: tuple[tuple[float, float], ...]
    p99_ms: float
    alone_ms: float


def strips(raw: Iterable[str], result: dict[str, object]) -> list[Strip]:
    """From the lines of raw output and the result made from them; KeyError where a scheme was not measured."""
    served: list[tuple[float, float]] = []
    cells: dict[str, tuple[tuple[float, float], ...]] = {}
    for line in raw:
        event = json.loads(line)
        if event.get("event") == "play":
            served = []  # clocks begin anew where a run was resumed
        elif event.get("event") == "requests" and event["program"] == "graph":
            served += zip(event["at"], event["latency_us"], strict=True)
        elif event.get("event") == "played":
            begin = event["begin"]
            cells[event["what"]] = tuple((at - begin, us / 1e3) for at, us in served if begin <= at < begin + SECONDS)
    rows = result["rows"]
    assert isinstance(rows, list)
    made = []
    for scheme in STRIPS:
        what = f"{MIX}: {scheme}"
        row = next((row for row in rows if row["what"].startswith(f"{what}: p99")), None)
        if row is None:
            raise KeyError(what)
        made.append(Strip(scheme, cells[what], row["value"] / 1e3, row["baseline"] / 1e3))
    return made


def svg(shown: list[Strip], machine: str) -> str:
    """The picture; it fetches nothing."""
    high = _TOP + _STEP * len(shown) + 34
    wide = _LEFT + _WIDE + 24
    title = "One request each 20 ms, beside a ViT training, a GPT-2 training and FFTs"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">',
        f"<title>{title}: latency of each</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{wide}" height="{high}"/><text class="title" x="16" y="24">{title}</text>',
        f'<text class="small" x="16" y="42">latency of each request, 0 to {MOST_MS:.0f} ms; {escape(machine)}; '
        "level gpu; dashed: p99 alone</text>",
    ]
    for index, strip in enumerate(shown):
        base = _TOP + _STEP * index + _HIGH
        alone = base - round(_HIGH * strip.alone_ms / MOST_MS, 1)
        dots = "".join(
            f"M{_LEFT + _WIDE * at / SECONDS:.1f} {base - _HIGH * min(ms, MOST_MS) / MOST_MS:.1f}h2v2h-2z"
            for at, ms in strip.requests
        )
        kind = "ours" if strip.scheme.startswith("DetShare") else "others"
        parts += [
            f'<text x="16" y="{base - 26}">{STRIPS[strip.scheme]}</text>',
            f'<text class="small" x="16" y="{base - 10}">p99 {strip.p99_ms:.2f} ms, alone {strip.alone_ms:.2f}</text>',
            f'<path class="base" d="M{_LEFT} {base}h{_WIDE}"/><path class="alone" d="M{_LEFT} {alone}h{_WIDE}"/>',
            f'<path class="{kind}" d="{dots}"/>',
        ]
    for second in range(int(SECONDS) + 1):
        x = _LEFT + _WIDE * second / SECONDS
        parts.append(f'<text class="small" text-anchor="middle" x="{x:.0f}" y="{high - 20}">{second} s</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    """The command line: folder of results, folder of pictures. Returns the exit code."""
    if len(arguments) != 2:
        print("usage: python -m detshare.tools.mix_picture RESULTS IMAGES", file=sys.stderr)
        return 2
    results, images = map(Path, arguments)
    try:
        result = json.loads((results / "mix.json").read_text(encoding="utf-8"))
        with gzip.open(results / "raw" / "mix.jsonl.gz", "rt", encoding="utf-8") as raw:
            text = svg(strips(raw, result), result["machine"].partition(";")[0])
        (images / NAME).write_text(text, encoding="utf-8")
    except (OSError, KeyError) as error:
        print(f"{results}: no picture can be made: {error}; next: detshare bench mix", file=sys.stderr)
        return 1
    print(images / NAME)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
