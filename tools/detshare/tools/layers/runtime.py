# SPDX-License-Identifier: Apache-2.0
"""The layers of libdetshare.so: a file of runtime/ uses what is in its own folder and in folders below it.

runtime/Makefile says the order of the folders. Two kinds of edges count: what a file includes, and what its object
takes from another one, as nm says. So objects are brought up to date first. What a file adds to a list of the linker
(base/list.h) is no edge: whoever walks the list knows no entry by name.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from detshare.tools.layers.circles import circles

__all__ = ["check"]

CIRCLE_MOST: Final = 4
"""Files that may use each other in a circle; a .c is one with its header."""

_LAYERS = re.compile(r"^layers\s*:=\s*(.*)$", re.MULTILINE)
# <../gate/gate.h> is ours too; what is in angle brackets and nowhere in runtime/ is the system's
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
_OURS: Final = frozenset("TDBRCVGS")
"""what nm says of a symbol that other objects can use"""
_TAKEN: Final = frozenset("Uwv")


@dataclass(frozen=True)
class _Edge:
    source: PurePosixPath  # in runtime/
    target: PurePosixPath
    what: str = ""
    """the symbol; empty: an include"""

    def __str__(self) -> str:
        return f"runtime/{self.source} -> runtime/{self.target}{f' ({self.what})' if self.what else ''}"


def check(root: Path) -> list[str]:
    """One line for each edge that goes up, circle that is too large, file in no layer."""
    found = _LAYERS.search((root / "runtime" / "Makefile").read_text())
    if not found:
        return ["runtime/Makefile: has no line `layers := ...` that names the folders from the lowest up"]
    order = {name: place for place, name in enumerate(found[1].split())}
    messages: list[str] = []
    texts = dict(_read(root / "runtime", order, messages))
    edges = list(_includes(texts, messages))
    upward = list(_upward(edges, order))
    if not messages and not upward:
        # each folder is compiled with the headers of lower ones only, so what includes upwards has no object
        objects = _objects(root, messages)
        calls = list(_calls(texts, objects)) if objects else []
        upward = list(_upward(calls, order))
        edges += calls
    return messages + upward + list(_circles(edges))


def _read(runtime: Path, order: Mapping[str, int], messages: list[str]) -> Iterator[tuple[PurePosixPath, str]]:
    headers: dict[str, PurePosixPath] = {}
    for file in sorted(path for suffix in ("c", "h") for path in runtime.rglob(f"*.{suffix}")):
        path = PurePosixPath(file.relative_to(runtime).as_posix())
        if len(path.parts) != 2 or path.parts[0] not in order:
            messages.append(f"runtime/{path}: is in no folder that `layers` of runtime/Makefile names")
        elif path.suffix == ".h" and headers.setdefault(path.name, path) != path:
            messages.append(f"runtime/{path}: has the name of runtime/{headers[path.name]}, so an include means either")
        else:
            yield path, file.read_text(encoding="utf-8")


def _includes(texts: Mapping[PurePosixPath, str], messages: list[str]) -> Iterator[_Edge]:
    named = {path.name: path for path in texts if path.suffix == ".h"}
    for path, text in texts.items():
        for mark, name in _INCLUDE.findall(text):
            inner = PurePosixPath(name)
            # <sys/log.h> is no log.h of ours
            ours = mark == '"' or len(inner.parts) == 1 or inner.parts[-2] in {each.parts[0] for each in texts}
            if ours and (target := named.get(inner.name)):
                yield _Edge(path, target)
            elif mark == '"':
                messages.append(f"runtime/{path}: includes {name}, which is nowhere in runtime/")


def _objects(root: Path, messages: list[str]) -> Path | None:
    """The folder of the objects, all of them made from the sources of now; None: a message says why there is none."""
    if missing := [tool for tool in ("make", "gcc", "nm") if shutil.which(tool) is None]:
        messages.append(
            f"runtime/: who calls whom is read from objects, and {' and '.join(missing)} is missing; "
            "as root: apt-get install gcc libc6-dev make"
        )
        return None
    build = root / "build"
    build.mkdir(exist_ok=True)
    # tests bring them up to date too, under this lock
    with (build / "runtime.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", "-j2", "-C", str(root / "runtime"), "RCK=yes", "objects"],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        messages.append(f"runtime/: does not compile, so who calls whom is not known: {said}")
        return None
    return build / "runtime"


def _calls(texts: Mapping[PurePosixPath, str], objects: Path) -> Iterator[_Edge]:
    home: dict[str, PurePosixPath] = {}
    takes: dict[PurePosixPath, list[str]] = defaultdict(list)
    for path in (path for path in texts if path.suffix == ".c"):
        said = subprocess.run(
            ["nm", "-P", str(objects / path.with_suffix(".o"))], capture_output=True, text=True, check=True
        ).stdout
        for name, kind in (line.split()[:2] for line in said.splitlines()):
            if kind in _OURS:
                home[name] = path
            elif kind in _TAKEN:
                takes[path].append(name)
    for path, names in takes.items():
        for name in sorted(names):
            if name in home:
                yield _Edge(path, home[name], name)


def _upward(edges: list[_Edge], order: Mapping[str, int]) -> Iterator[str]:
    for edge in dict.fromkeys(edges):
        source, target = edge.source.parts[0], edge.target.parts[0]
        if order[source] < order[target]:
            does = "calls" if edge.what else "includes"
            yield f"{edge}: {source} lies below {target}; a file {does} what is in its own folder and in lower ones"


def _circles(edges: list[_Edge]) -> Iterator[str]:
    graph: dict[str, set[str]] = {}
    for edge in edges:
        source, target = str(edge.source.with_suffix("")), str(edge.target.with_suffix(""))
        if source != target:
            graph.setdefault(source, set()).add(target)
    for circle in circles(graph):
        if len(circle) > CIRCLE_MOST:
            yield f"runtime/: {len(circle)} files use each other in a circle, {CIRCLE_MOST} may: {', '.join(circle)}"
