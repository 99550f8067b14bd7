# SPDX-License-Identifier: Apache-2.0
"""How the tools of detshare-trace print: plain columns for people, lines of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

_UNITS = ("", "K", "M", "G", "T")


def amount(count: float) -> str:
    """Bytes in four characters or so."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f}{unit}" if unit == "" or count >= 100 else f"{count:.1f}{unit}"
        count /= 1024
    raise AssertionError


def duration(ns: float) -> str:
    """A time with its unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g}{unit}"
    return f"{ns:.0f}ns"


def stream(handle: int) -> str:
    """A stream as programs name it."""
    return {0: "null", 1: "legacy", 2: "per-thread"}.get(handle, f"{handle:#x}")


def line(data: Mapping[str, Any]) -> None:
    """One line of JSON."""
    click.echo(json.dumps(data))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 0, *, last_left: bool = False) -> None:
    """Columns as wide as they need; the first `left` of them (and the last) to the left, the others to the right."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for row in lines:
        cells = [
            cell.ljust(width) if number < left or (last_left and number == len(row) - 1) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo(" ".join(cells).rstrip())


def partial(notes: Iterable[str]) -> None:
    """Says on stderr why the view is not whole."""
    for note in notes:
        click.echo(f"partial: {note}", err=True)


def clean(text: str) -> str:
    """Text of another program without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def histogram(buckets: Mapping[int, int], width: int = 40) -> None:
    """Powers of two: bucket n counts what was at least 2**n ns and less than 2**(n + 1)."""
    if not buckets:
        return
    most = max(buckets.values())
    for bucket in range(min(buckets), max(buckets) + 1):
        count = buckets.get(bucket, 0)
        bar = "#" * (count * width // most)
        click.echo(f"  {duration(2**bucket):>8} .. {duration(2 ** (bucket + 1)):>8} {count:9d} {bar}".rstrip())
