# SPDX-License-Identifier: Apache-2.0
"""The layers of kmod/: a file uses what is in its own folder and in folders below, the order of which Kbuild says.

Two kinds of edges count: what a file includes, and what it calls or reads that another file defines. The second is read
from the sources, not from objects: so it is the same whether or not anything is built, and for whatever kernel. A name
that a macro pastes together is not seen; the names of an inline function count for its header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import Final

from detshare.tools.layers.circles import circles

__all__ = ["KNOWN", "Known", "check"]

CIRCLE_MOST: Final = 4
"""Files that may use each other in a circle; a .c is one with its header and that of its inside, x_impl.h."""

_TOP, _BOTTOM = "main.c", "detshare_uapi.h"  # what lies in kmod/ itself: above and below all folders
_SUFFIXES = (".c", ".h", ".S")
_LAYERS = re.compile(r"^layers\s*:=\s*(.*)$", re.MULTILINE)
# -I lets <sched/sched.h> be ours too; what is in angle brackets and nowhere in kmod/ is the kernel's
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
_NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_MACRO = re.compile(r"[ \t]*#[ \t]*define[ \t]+\w+")
_USE = re.compile(r"(?P<other>(?:\b(?:struct|enum|union)\s+|\.|->\s*)\w+)|\b(?P<name>(?:ds|rm|detshare)_\w+)")
_STATEMENT = re.compile(r"([^;{}]*)(\{\}|;)")
_LOCAL = re.compile(r"\b(?:static|extern|typedef)\b")
_FUNCTION = re.compile(r"\b((?:ds|rm|detshare)_\w+)\s*\(.*\)\s*$", re.DOTALL)
_VARIABLE = re.compile(r"[\s*]((?:ds|rm|detshare)_\w+)\s*(?:\[[^\]]*\]\s*)*(?=,|$)")
_TAG = re.compile(r"^\s*(?:struct|enum|union)\s+\w+\s*$")
# macros of the kernel that define the variable that they name last
_DEFINER = re.compile(r"^\s*(?:DEFINE_\w+|DECLARE_RWSEM|H?LIST_HEAD)\s*\(.*?\b((?:ds|rm|detshare)_\w+)\s*\)\s*$", re.S)
_ASSEMBLED = re.compile(r"^\s*SYM_\w*START\w*\((\w+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Known:
    """What is not as it should be, each with the reason why it stays. One that is no more must go from here."""

    edges: Mapping[str, str] = field(default_factory=dict)
    """"client/client.c -> sched/pause.h", as in the message"""
    circles: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """folder: files in its circle, and the reason"""


KNOWN: Final = Known()


@dataclass
class _Source:
    path: PurePosixPath  # in kmod/
    text: str
    defines: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)

    @property
    def unit(self) -> str:
        return str(self.path.with_suffix("")).removesuffix("_impl")

    @property
    def folder(self) -> str:
        return self.path.parts[0] if len(self.path.parts) > 1 else ""


def check(root: Path, known: Known = KNOWN) -> list[str]:
    """One line for each edge that goes up, circle that is too large, file in no layer."""
    found = _LAYERS.search((root / "Kbuild").read_text())
    if not found:
        return ["Kbuild: has no line `layers := ...` that names the folders of kmod/ from the lowest up"]
    order = {name: place for place, name in enumerate(found[1].split(), start=1)}
    sources, messages = _read(root / "kmod", order)
    edges = list(_includes(sources, messages)) + list(_calls(sources))
    messages += _upward(edges, {**order, _TOP: len(order) + 1, _BOTTOM: 0}, known.edges)
    messages += _circles(edges, known.circles)
    return messages


def _read(kmod: Path, order: Mapping[str, int]) -> tuple[list[_Source], list[str]]:
    sources, messages = [], []
    headers: dict[str, PurePosixPath] = {}
    for file in sorted(kmod.rglob("*")):
        path = PurePosixPath(file.relative_to(kmod).as_posix())
        if file.suffix not in _SUFFIXES or path.name.endswith(".mod.c"):
            continue
        if (path.parts[0] not in order) if len(path.parts) == 2 else (str(path) not in (_TOP, _BOTTOM)):
            messages.append(f"{path}: is in no folder that Kbuild's `layers` names")
            continue
        if file.suffix == ".h" and headers.setdefault(path.name, path) != path:
            messages.append(f"{path}: has the name of {headers[path.name]}, so an include means either")
        source = _Source(path, file.read_text(encoding="utf-8"))
        _lex(source)
        sources.append(source)
    return sources, messages


def _lex(source: _Source) -> None:
    """What it defines for others, and the names of ours that its bodies, initialisers and macros use."""
    if source.path.suffix == ".S":
        source.defines = set(_ASSEMBLED.findall(source.text))
        return
    bare = _NOISE.sub(" ", source.text)
    macros = (_MACRO.sub("", text, count=1) for text in _DIRECTIVE.findall(bare) if _MACRO.match(text))
    outside, inside = _halves(_DIRECTIVE.sub("", bare))
    statements = _STATEMENT.findall(outside)
    values = (head.partition("=")[2] for head, _ in statements)
    for text in (inside, *macros, *values):
        source.uses |= {match["name"] for match in _USE.finditer(text) if match["name"]}
    if source.path.suffix == ".c":
        source.defines = {name for head, end in statements for name in _defined(head, end)}


def _halves(text: str) -> tuple[str, str]:
    """What is outside of all braces, with {} in their place, and what is inside of any."""
    outside: list[str] = []
    inside: list[str] = []
    depth = 0
    for piece in re.split(r"([{}])", text):
        if piece == "{":
            depth += 1
        elif piece == "}":
            depth -= 1
            if depth == 0:
                outside.append("{}")
        else:
            (inside if depth else outside).append(piece)
    return "".join(outside), "\n".join(inside)


def _defined(head: str, end: str) -> list[str]:
    """The names of ours that a statement at file scope defines for other files."""
    before, equals, _ = head.partition("=")
    if _LOCAL.search(head) or _TAG.match(head):
        return []
    if "(" in before:
        return (_FUNCTION if end == "{}" else _DEFINER).findall(head)
    return _VARIABLE.findall(before) if equals or end == ";" else []


def _includes(sources: list[_Source], messages: list[str]) -> Iterator[tuple[_Source, _Source, str]]:
    at = {source.path: source for source in sources}
    named = {source.path.name: source for source in sources if source.path.suffix == ".h" and source.folder != "rm"}
    for source in sources:
        for mark, name in _INCLUDE.findall(source.text):
            beside = at.get(PurePosixPath(normpath(source.path.parent / name)))
            target = beside or at.get(PurePosixPath(name)) or named.get(name)
            if target:
                yield source, target, str(target.path)
            elif mark == '"':
                messages.append(f"{source.path}: includes {name}, which is nowhere in kmod/")


def _calls(sources: list[_Source]) -> Iterator[tuple[_Source, _Source, str]]:
    home = {name: source for source in sources for name in source.defines}
    for source in sources:
        for name in sorted(source.uses):
            if name in home and home[name] is not source:
                yield source, home[name], f"{home[name].path} ({name})"


def _upward(
    edges: list[tuple[_Source, _Source, str]], order: Mapping[str, int], known: Mapping[str, str]
) -> Iterator[str]:
    def place(source: _Source) -> int:
        return order[source.folder or source.path.name]

    found = {
        f"{source.path} -> {what}": (source, target) for source, target, what in edges if place(source) < place(target)
    }
    for edge, (source, target) in found.items():
        if edge not in known:
            below, above = source.folder or source.path.name, target.folder or target.path.name
            yield f"{edge}: {below} lies below {above}; a file uses what is in its own folder and in lower ones"
    for edge in known:
        if edge not in found:
            yield f"{edge}: is listed as known, and is no more: take it off the list"


def _circles(edges: list[tuple[_Source, _Source, str]], known: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    graph: dict[str, set[str]] = {}
    for source, target, _ in edges:
        if source.unit != target.unit:
            graph.setdefault(source.unit, set()).add(target.unit)
    sizes: dict[str, int] = {}
    for circle in circles(graph):
        folder = circle[0].partition("/")[0]
        if len(circle) <= CIRCLE_MOST:
            continue
        sizes[folder] = max(sizes.get(folder, 0), len(circle))
        if len(circle) > (known[folder][0] if folder in known else CIRCLE_MOST):
            yield f"{folder}/: {len(circle)} files use each other in a circle, {CIRCLE_MOST} may: {', '.join(circle)}"
    for folder, (count, _) in known.items():
        if sizes.get(folder, 0) < count:
            yield f"{folder}/: a circle of {count} files is listed as known, and it is smaller: mend the list"
