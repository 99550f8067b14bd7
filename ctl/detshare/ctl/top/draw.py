# SPDX-License-Identifier: Apache-2.0
"""A frame: lines of styled text no wider than the screen, from a snapshot and what the person has chosen."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Span, Text

from detshare.ctl.core.gputime import SLOTS
from detshare.ctl.core.words import schedule, schedules, spark
from detshare.ctl.top.columns import BARS, WIDE, Column, columns, counted
from detshare.ctl.top.details import details
from detshare.ctl.top.keys import HELP, View, selected
from detshare.ctl.top.prompts import PROMPTS
from detshare.ctl.top.rows import Row, gpu_index, gpu_rows, ordered, rows, select, several
from detshare.ctl.top.ticker import ticker
from detshare.ctl.top.values import UNKNOWN, bar, clean, items, number, texts

_EMPTY: Mapping[str, Any] = {}
_MESSAGE_LINES = 3
_STATE_STYLES = {
    "running": "green", "active": "green", "gated": "yellow", "paused": "yellow", "no-context": "dim",
    "not-understood": "red", "read-only": "cyan",
    "mps-server": "blue", "mps-client": "blue", "spatial": "green",
    "parked": "cyan",
}  # fmt: skip
_TITLES = {"BAR": "", "SM BAR": "SM", "MEM BAR": "", "USE": "MEM"}
_TURN_STYLES = {"holds": "bold green", "window": "green", "rests": "dim"}
_CLASS_STYLES = {"high": "bold green", "normal": "", "low": "yellow", "idle": "dim"}


def fit(text: str, width: int, right: bool = False, dots: str = "…") -> str:
    """`text` in exactly `width` cells; a cut is shown."""
    if width <= 0:
        return ""
    if text.isascii() and len(text) <= width:
        return text.rjust(width) if right else text.ljust(width)
    if cell_len(text) > width:
        kept = width - cell_len(dots)
        return set_cell_size(text, kept) + dots if kept > 0 else set_cell_size(text, width)
    return " " * (width - cell_len(text)) + text if right else set_cell_size(text, width)


def _full(part: float | None) -> str:
    """The colour of a memory bar."""
    return "green" if part is None or part < 0.8 else "dark_orange3" if part < 0.95 else "red"


def can_show_blocks(console: Console) -> bool:
    """Whether the terminal takes more than ASCII."""
    return console.encoding.lower().replace("-", "") == "utf8"


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
        every: Sequence[Row] | None = None,
    ) -> list[Text]:
        """All lines; with a height exactly as many as the screen has at most. `every`: its rows, if known."""
        shown = snapshot or _EMPTY
        every = rows(shown) if every is None else every
        found = ordered(select(every, view.filter), view.sort)
        head = self._header(shown, len(every), view, age)
        foot = [*self._ticker(shown, every, view), *self._footer(view, can_act, error, snapshot is None)]
        room = None if self.height is None else max(self.height - len(head) - len(foot), 0)
        body = self._help() if view.help else self._programs(shown, found, every, view, room, snapshot)
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
        if self.width >= WIDE and took is not None:
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
        numbers = gpu_index(items(snapshot.get("gpus")))
        for each in schedules(snapshot)[:most]:
            lines.append(self.line(f"GPU {numbers.get(clean(each.get('gpu')), '?'):>2}  {schedule(each)}", "cyan"))
        for warning in texts(snapshot.get("warnings"))[:3]:
            lines += self.wrapped(f"warning: {warning}", "yellow", most=2)
        by = f"sorted by {view.sort}" + (f", only with {clean(view.filter)!r}" if view.filter else "")
        lines.append(self.line(by, "dim"))
        return lines

    def _programs(
        self,
        shown: Mapping[str, Any],
        found: Sequence[Row],
        every: Sequence[Row],
        view: View,
        room: int | None,
        snapshot: Mapping[str, Any] | None,
    ) -> list[Text]:
        limits = shown.get("backend") == "kmod" or any(row.limit is not None for row in every)
        turns = any(row.cells["TURN"] != UNKNOWN for row in every)
        chosen = columns(self.width, limits, counted(every), turns, any(row.lately for row in every), several(every))
        cells = []
        for column in chosen:
            name = _TITLES.get(column.name, column.name)
            cells.append(fit(name, column.width, column.right))
        lines = [Text((" " + " ".join(cells)).ljust(self.width)[: self.width], "reverse", no_wrap=True)]
        current = selected(view, found)
        below: list[Text] = []
        if view.details:
            for text, style in details(shown, current):
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
            lines.append(self.line(f" {none if snapshot is not None else 'looking ...'}", "dim"))
        return lines + below

    def _row(self, row: Row, chosen: Sequence[Column], current: bool) -> Text:
        parts: list[tuple[str, str]] = [(">" if current else " ", "")]
        for number_, column in enumerate(chosen):
            if number_:
                parts.append((" ", ""))
            parts += self._cell(row, column)
        # one Text of all: to append piece by piece takes rich most of a frame's time
        spans, at = [], 0
        for text, style in parts:
            if style:
                spans.append(Span(at, at + len(text), style))
            at += len(text)
        made = Text("".join(text for text, _ in parts), spans=spans, no_wrap=True)
        if current:
            made.stylize("bold on grey23")
        else:
            made.rstrip()
        made.truncate(self.width)
        return made

    def _cell(self, row: Row, column: Column) -> list[tuple[str, str]]:
        """The pieces of one cell, with their styles."""
        if column.name in BARS:
            value = {"BAR": row.share, "SM BAR": row.sms, "MEM BAR": row.limit}[column.name]
            style = _full(value) if column.name == "MEM BAR" else "green"
            return [(bar(value, column.width, not self._unicode), style)]
        if column.name == "LATELY":
            return [(fit(spark(row.lately, column.width, not self._unicode, SLOTS), column.width, right=True), "green")]
        cell = row.state if column.name == "STATE" and column.width >= 14 else row.cells[column.name]
        if column.name == "LANE":
            cell = cell[: column.width]
        text = fit(cell, column.width, column.right, "…" if self._unicode else "~")
        if column.name == "USE" and row.limit is not None:
            # a bar behind the text, full at the limit
            used = round(min(max(row.limit, 0.0), 1.0) * len(text))
            return [(text[:used], f"white on {_full(row.limit)}"), (text[used:], "")]
        if column.name == "TURN":
            return [(text, _TURN_STYLES.get(cell, ""))]
        if column.name == "STATE":
            if row.stalled:
                return [(fit("stalled", column.width), "bold red")]
            return [(text, _STATE_STYLES.get(row.state, ""))]
        return [(text, _CLASS_STYLES.get(row.klass or "", "") if column.name == "CLASS" else "")]

    def _ticker(self, shown: Mapping[str, Any], every: Sequence[Row], view: View) -> list[Text]:
        """The newest decisions; none where the screen is low, or where nothing decides."""
        if self.height is None or self.height < 16 or view.help:
            return []
        most = 1 if self.height <= 24 else 4
        return [self.line(text, style) for text, style in ticker(shown, {row.pid for row in every}, most)]

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
        if view.mode in PROMPTS:
            who = view.selected[0] if view.selected else None
            asked = PROMPTS[view.mode].asks.format(who="-" if who is None else who)
            return [*lines, self.line(f"{asked}: {view.prompt}_   {PROMPTS[view.mode].keys}", "bold")]
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
