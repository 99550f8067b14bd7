# SPDX-License-Identifier: Apache-2.0
"""A frame: lines of styled text no wider than the screen, from a snapshot and what the person has chosen."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from detshare.ctl.top.details import details
from detshare.ctl.top.keys import HELP, View, selected
from detshare.ctl.top.rows import Row, bar, clean, gpu_rows, number, ordered, rows, select, texts

_EMPTY: Mapping[str, Any] = {}
_MESSAGE_LINES = 3
_STATE_STYLES = {
    "running": "green", "active": "green", "gated": "yellow", "paused": "yellow", "no-context": "dim",
    "not-understood": "red", "read-only": "cyan",
    "mps-server": "blue", "mps-client": "blue",
}  # fmt: skip
_CLASS_STYLES = {"high": "bold green", "normal": "", "low": "yellow", "idle": "dim"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; `width` in cells of the screen."""

    name: str
    width: int
    right: bool = False


_MINIMAL = (Column("PID", 7, True), Column("CLASS", 6), Column("SHARE", 5, True), Column("STATE", 10))
_NARROW = (
    Column("PID", 7, True), Column("GPU", 3, True), Column("CLASS", 6), Column("SLICE", 6, True),
    Column("LEVEL", 6), Column("MEM", 5, True), Column("SHARE", 5, True), Column("STATE", 10),
)  # fmt: skip
_WIDE = (
    Column("PID", 7, True), Column("USER", 8), Column("CONTAINER", 12), Column("GPU", 5, True),
    Column("CLASS", 7), Column("TSGS", 4, True), Column("SLICE", 7, True), Column("LEVEL", 6),
    Column("MEM", 6, True), Column("SHARE", 5, True), Column("BAR", 16), Column("STATE", 14),
)  # fmt: skip


def columns(width: int, limits: bool = False) -> list[Column]:
    """The columns for a screen of `width` cells; COMMAND takes what is left. `limits`: somebody may hold some."""
    chosen = list(_WIDE if width >= 130 else _NARROW if width >= 72 else _MINIMAL)
    for number_, column in enumerate(chosen):
        if limits and column.name == "MEM":
            chosen.insert(number_ + 1, Column("LIMIT", column.width, True))
            break
    used = 1 + sum(column.width + 1 for column in chosen)
    return [*chosen, Column("COMMAND", max(width - used, 0))]


def fit(text: str, width: int, right: bool = False, dots: str = "…") -> str:
    """`text` in exactly `width` cells; a cut is shown."""
    if width <= 0:
        return ""
    if cell_len(text) > width:
        kept = width - cell_len(dots)
        return set_cell_size(text, kept) + dots if kept > 0 else set_cell_size(text, width)
    return " " * (width - cell_len(text)) + text if right else set_cell_size(text, width)


class Painter:
    """Draws for one screen. `unicode`: the screen can show block characters and dots."""

    def __init__(self, width: int, height: int | None, unicode: bool = True) -> None:
        self.width, self.height = max(width, 1), height
        self._unicode = unicode

    def line(self, text: str, style: str = "") -> Text:
        return Text(fit(text, self.width, dots="…" if self._unicode else "...").rstrip(), style, no_wrap=True)

    def wrapped(self, text: str, style: str = "", indent: str = "", most: int = 100) -> list[Text]:
        found: list[Text] = []
        for part in text.splitlines():
            for piece in textwrap.wrap(part, self.width, subsequent_indent=indent) or [""]:
                found.append(self.line(piece, style))
        return found[:most]

    def frame(
        self,
        snapshot: Mapping[str, Any] | None,
        view: View,
        *,
        can_act: bool = True,
        error: str = "",
        age: float = 0.0,
    ) -> list[Text]:
        """All lines; with a height exactly as many as the screen has at most."""
        shown = snapshot or _EMPTY
        every = rows(shown)
        found = ordered(select(every, view.filter), view.sort)
        head = self._header(shown, len(every), view, age)
        foot = self._footer(view, can_act, error, snapshot is None)
        room = None if self.height is None else max(self.height - len(head) - len(foot), 0)
        body = self._help() if view.help else self._programs(shown, found, view, room, snapshot is not None)
        if room is not None:
            body = [*body[:room], *[Text("")] * (room - len(body))]
        lines = [*head, *body, *foot]
        return lines if self.height is None else lines[: self.height]

    def _header(self, snapshot: Mapping[str, Any], programs: int, view: View, age: float) -> list[Text]:
        backend, proof = clean(snapshot.get("backend")) or "-", clean(snapshot.get("proof")) or "-"
        driver = clean(snapshot.get("driver")) or "-"
        took = number(snapshot.get("seconds"))
        count = "1 program" if programs == 1 else f"{programs} programs"
        facts = [f"driver {driver}", f"backend {backend}", f"proof {proof}", count]
        if self.width >= 130 and took is not None:
            facts.append(f"look {took * 1e3:.1f} ms")
        if age >= 3.0:
            facts.append(f"{age:.0f} s old")
        title = self.line("detshare-top  " + "  ".join(facts), "bold")
        at = title.plain.find(f"proof {proof}")
        if proof != "gpu" and at >= 0:
            title.stylize("bold black on magenta", at, at + len(f"proof {proof}"))
        lines = [title]
        gpus = gpu_rows(snapshot)
        most = len(gpus) if self.height is None else max(self.height // 4, 1)
        for gpu in gpus[:most]:
            tail = f"  {gpu.uuid}  mem {gpu.memory}"
            name = fit(gpu.name, max(min(self.width - len(tail) - 8, max(len(g.name) for g in gpus)), 4))
            lines.append(self.line(f"GPU {gpu.index:>2}  {name}{tail}", "cyan"))
        if len(gpus) > most:
            lines.append(self.line(f"and {len(gpus) - most} GPUs more", "cyan"))
        for warning in texts(snapshot.get("warnings"))[:2]:
            lines += self.wrapped(f"warning: {warning}", "yellow", most=2)
        by = f"sorted by {view.sort}" + (f", only with {clean(view.filter)!r}" if view.filter else "")
        lines.append(self.line(by, "dim"))
        return lines

    def _programs(
        self, snapshot: Mapping[str, Any], found: Sequence[Row], view: View, room: int | None, looked: bool
    ) -> list[Text]:
        chosen = columns(self.width, snapshot.get("backend") == "kmod")
        cells = []
        for column in chosen:
            name = "" if column.name == "BAR" else column.name
            cells.append(fit(name, column.width, column.right))
        lines = [Text((" " + " ".join(cells)).ljust(self.width)[: self.width], "reverse", no_wrap=True)]
        current = selected(view, found)
        below: list[Text] = []
        if view.details:
            for text, style in details(snapshot, current):
                below += self.wrapped(text, style, indent="    ") or [Text("")]
        fits = len(found)
        if room is not None:
            # details take what the list does not need, at least half of the room
            fits = max(room - 1 - (min(len(below), max(room // 2, room - 1 - len(found))) if below else 0), 1)
        view.page = max(fits, 1)
        at = next((i for i, row in enumerate(found) if row is current), None)
        if at is not None:
            view.offset = min(max(view.offset, at - fits + 1), at)
        view.offset = max(min(view.offset, len(found) - fits), 0)
        for row in found[view.offset : view.offset + fits]:
            lines.append(self._row(row, chosen, row is current and room is not None))
        if not found:
            none = (
                "no program has that text; esc drops the filter" if view.filter else "no program uses a GPU"
            )
            lines.append(self.line(f" {none if looked else 'looking ...'}", "dim"))
        return lines + below

    def _row(self, row: Row, chosen: Sequence[Column], current: bool) -> Text:
        text = Text(">" if current else " ", no_wrap=True)
        for number_, column in enumerate(chosen):
            if number_:
                text.append(" ")
            if column.name == "BAR":
                text.append(bar(row.share, column.width, not self._unicode), "green")
                continue
            cell = row.state if column.name == "STATE" and column.width >= 14 else row.cells[column.name]
            style = ""
            if column.name == "STATE":
                style = _STATE_STYLES.get(row.state, "")
            elif column.name == "CLASS":
                style = _CLASS_STYLES.get(row.klass or "", "")
            text.append(fit(cell, column.width, column.right, "…" if self._unicode else "~"), style)
        if current:
            text.stylize("bold on grey23")
        else:
            text.rstrip()
        text.truncate(self.width)
        return text

    def _help(self) -> list[Text]:
        lines = [self.line("")]
        for keys, what in HELP:
            lines += self.wrapped(f"  {keys:<16} {what}", indent=" " * 19)
        return [*lines, self.line(""), self.line("  any key goes back", "dim")]

    def _footer(self, view: View, can_act: bool, error: str, nothing: bool) -> list[Text]:
        if self.height is None:
            return self.wrapped(error, "red")
        lines: list[Text] = []
        if error:
            told = f"no look: {error}" if nothing else f"last look failed: {error}"
            lines += self.wrapped(told, "red", most=_MESSAGE_LINES)
        if view.message:
            lines += self.wrapped(view.message, "bold red" if view.bad else "green", most=_MESSAGE_LINES)
        if view.mode == "filter":
            return [*lines, self.line(f"show only: {view.prompt}_   enter keeps it, esc drops it", "bold")]
        if view.mode == "weight":
            who = view.selected[0] if view.selected else "-"
            return [
                *lines,
                self.line(f"weight of {who} (1..1000): {view.prompt}_   enter sets it, esc leaves", "bold"),
            ]
        keys = [
            "q quit",
            "s sort",
            "/ filter",
            "1-4 class",
            "w weight",
            "p pause",
            "r release",
            "d details",
            "? help",
        ]
        if not can_act:
            keys[3:7] = ["(read-only: changes need detshared)"]
        gap = "  " if self.width >= 90 else " "
        line = self.line(gap.join(keys), "dim")
        if self.width >= len(gap.join(keys)):
            at = 0
            for key in keys:
                line.stylize("not dim bold", at, at + len(key.split(" ")[0]) * (key[0] != "("))
                at += len(key) + len(gap)
        return [*lines, line]
