# SPDX-License-Identifier: Apache-2.0
"""Keys: bytes of the terminal to names, names to changes of the view or to verbs."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detshare.ctl.top.prompts import PROMPTS
from detshare.ctl.top.rows import SORTS, Row, select, sorts
from detshare.ctl.top.values import texts

HELP = (
    ("up/down, k/j", "select a program (home, end, page up, page down too)"),
    ("s", "sort in turn by share, memory, pid, class; launches, delay, held, gpu where there are any"),
    ("/", "show only programs with a text in them, or on gpu 1; enter keeps it, esc drops it"),
    ("1 2 3 4", "class of the selected program: high, normal, low, idle"),
    ("w", "weight of the selected program (1..1000), GPU time in proportion"),
    ("m", "memory limit of the selected program: 8G, 512M, max for none"),
    ("x", "its percent of the SMs: spatial lane at once, temporal lane as a ceiling (needs detshare.ko)"),
    ("o", "hold it: no new launch begins; again: let it go on"),
    ("p", "pause the selected program, or let it go on"),
    ("r", "release it: everything as it was before DetShare"),
    ("P", "let another policy decide: NAME [key=value]"),
    ("d, enter", "details of the selected program"),
    ("? or h", "this page"),
    ("q", "quit"),
)
_CLASS_KEYS = {"1": "high", "2": "normal", "3": "low", "4": "idle"}
_SEQUENCES = {
    "A": "up", "B": "down", "H": "home", "F": "end",
    "1~": "home", "4~": "end", "7~": "home", "8~": "end", "5~": "pageup", "6~": "pagedown",
}  # fmt: skip
_CSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.")
_CSI_PART = re.compile(r"\x1b(\[[0-9;?]*[ -/]*|O)?\Z")
_PLAIN = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x15": "clear"}


@dataclass(frozen=True, slots=True)
class Verb:
    """A change to ask of the daemon."""

    name: str
    who: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class View:
    """What the person at the keys has chosen."""

    sort: str = SORTS[0]
    filter: str = ""
    selected: tuple[int | None, int | None] | None = None
    mode: str = "list"
    """list, or what is being typed: a name of prompts.PROMPTS"""
    prompt: str = ""
    details: bool = False
    help: bool = False
    quit: bool = False
    offset: int = 0
    """first row shown"""
    page: int = 10
    """rows that fit; set by the drawing"""
    message: str = ""
    bad: bool = False
    """the message tells of a failure"""

    def say(self, message: str, bad: bool = False) -> None:
        self.message, self.bad = message, bad


class Decoder:
    """Bytes to key names. An escape sequence may come in pieces; `flush` when nothing more came."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def waiting(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + self._utf8.decode(data)
        self._rest = ""
        found: list[str] = []
        while text:
            if text[0] != "\x1b":
                char, text = text[0], text[1:]
                if char in _PLAIN or char.isprintable():
                    found.append(_PLAIN.get(char, char))
            elif match := _CSI.match(text):
                text = text[match.end() :]
                name = _SEQUENCES.get(match[0][2:])
                if name:
                    found.append(name)
            elif _CSI_PART.match(text):
                self._rest, text = text, ""
            else:
                found.append("esc")
                text = text[1:]
        return found

    def flush(self) -> list[str]:
        """The escape key itself, when no sequence followed it."""
        waited, self._rest = self._rest, ""
        return ["esc"] if waited else []


def selected(view: View, found: Sequence[Row]) -> Row | None:
    """The selected row. None where that program ended: a key must never act on the one that took its line."""
    return next((row for row in found if row.key == view.selected), None)


def pin(view: View, found: Sequence[Row]) -> None:
    """Select the first row where nothing was selected yet; called before each drawing."""
    if view.selected is None and found:
        view.selected = found[0].key


def _move(view: View, found: Sequence[Row], to: int, relative: bool) -> None:
    if not found:
        return
    now = next((i for i, row in enumerate(found) if row.key == view.selected), None)
    target = to if not relative else 0 if now is None else now + to
    view.selected = found[min(max(target, 0), len(found) - 1)].key


def _typed(view: View, key: str, found: Sequence[Row]) -> Verb | None:
    """A key while a line is being typed."""
    if key == "backspace":
        view.prompt = view.prompt[:-1]
    elif key == "clear":
        view.prompt = ""
    elif len(key) == 1 and len(view.prompt) < 60:
        view.prompt += key
    if view.mode == "filter":
        view.filter = "" if key == "esc" else view.prompt
        shown = select(found, view.filter)
        if selected(view, shown) is None:
            view.selected = None
            pin(view, shown)
    if key == "esc":
        view.mode = "list"
    if key != "enter":
        return None
    mode, view.mode = view.mode, "list"
    text = view.prompt.strip()
    if mode == "filter" or (mode == "policy" and not text):
        return None
    try:
        args = PROMPTS[mode].read(text)
    except ValueError as error:
        view.say(f"{error}; nothing was changed", bad=True)
        return None
    if mode == "policy":
        return Verb(PROMPTS[mode].verb, "*", args)
    row = selected(view, found)
    name = PROMPTS[mode].verb
    if mode == "sms" and row is not None and row.cells["LANE"] != "spatial":
        name = "set-ceiling"
    return _verb(view, row, name, args)


def _verb(view: View, row: Row | None, name: str, args: Mapping[str, Any]) -> Verb | None:
    if row is None or row.pid is None:
        view.say("the selected program is not here any more; select another one", bad=True)
        return None
    return Verb(name, str(row.pid), args)


def _is_held(row: Row) -> bool:
    """By hand: what a class or a policy holds for a moment is not meant."""
    spatial, doing = row.raw.get("spatial"), row.raw.get("activity")
    if isinstance(spatial, Mapping):
        return spatial.get("held") is True
    return isinstance(doing, Mapping) and "order" in texts(doing.get("reasons"))


def handle(view: View, key: str, found: Sequence[Row], can_act: bool) -> Verb | None:
    """Apply a key to the view; the verb to run, if it asks for one. `found`: all rows, in the order shown."""
    if view.quit:
        return None
    if view.mode != "list":
        return _typed(view, key, found)
    if view.help:
        view.help = False
        view.quit = key == "q"
        return None
    view.say("")
    found = select(found, view.filter)
    row = selected(view, found)
    match key:
        case "q":
            view.quit = True
        case "?" | "h":
            view.help = True
        case "up" | "k":
            _move(view, found, -1, relative=True)
        case "down" | "j":
            _move(view, found, 1, relative=True)
        case "pageup":
            _move(view, found, -view.page, relative=True)
        case "pagedown":
            _move(view, found, view.page, relative=True)
        case "home" | "g":
            _move(view, found, 0, relative=False)
        case "end" | "G":
            _move(view, found, len(found) - 1, relative=False)
        case "s":
            orders = sorts(found)
            view.sort = orders[(orders.index(view.sort) + 1) % len(orders)] if view.sort in orders else orders[0]
        case "/":
            view.mode, view.prompt = "filter", view.filter
        case "esc":
            view.filter, view.details = "", False
        case "d" | "enter":
            view.details = not view.details
        case "1" | "2" | "3" | "4" | "w" | "p" | "r" | "m" | "x" | "o" | "P" if not can_act:
            view.say(
                "no daemon answers here, so this is read-only; start detshared as root for keys to act",
                bad=True,
            )
        case "1" | "2" | "3" | "4":
            return _verb(view, row, "set-priority", {"class": _CLASS_KEYS[key]})
        case "p":
            return _verb(view, row, "resume" if row and row.state == "paused" else "pause", {})
        case "r":
            return _verb(view, row, "release", {})
        case "o":
            return _verb(view, row, "resume" if row and _is_held(row) else "hold", {})
        case "w" | "m" | "x":
            mode = {"w": "weight", "m": "memory", "x": "sms"}[key]
            if _verb(view, row, PROMPTS[mode].verb, {}):
                view.mode, view.prompt = mode, ""
        case "P":
            view.mode, view.prompt = "policy", ""
        case _:
            pass
    return None
