# SPDX-License-Identifier: Apache-2.0
"""Who may import whom, in Python: the rooms of the product and their order, and circles.

An import counts wherever it stands: in a function, for types only, or as a text that import_module or __import__ is
given. A name in another string (an entry point, a subcommand) does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detshare.tools.layers.circles import circles

__all__ = ["KNOWN", "check", "problems"]

PARTS: Final = ("ctl", "runtime", "ebpf", "tools")
"""roots of the sources, as pyproject.toml has them: detshare.PART lies in PART/detshare/PART"""

ORDER: Final = (
    ("ctl.abi", "ctl.core"),
    ("ctl.client", "ctl.rm", "ctl.checkpoint", "ctl.netlink", "ctl.gputime", "ebpf", "runtime"),
    ("ctl.backends",),
    ("ctl.backends.root", "ctl.backends.spatial", "ctl.backends.model"),
    ("ctl.backends.module",),
    ("ctl.oneshot",),
    ("ctl.policy",),
    ("ctl.daemon",),
    ("ctl.cdi", "ctl.kubernetes", "ctl.library", "ctl.sim", "ctl.support", "ctl.top"),
    ("ctl.cli", "ctl.trace"),
    ("",),
    ("tools",),
)
"""A room may import itself and the rooms of the rows above its own. "" is what `import detshare` gives."""

ONLY: Final[Mapping[str, Set[str]]] = {
    "ctl.cdi": {"ctl.core", "runtime"},
    "ctl.kubernetes": {"ctl.core", "ctl.client"},
    "ctl.library": {"ctl.core", "ctl.client"},
    "ctl.top": {"ctl.core", "ctl.client"},
}
"""rooms that may import less than their row says"""

BESIDE: Final = ("detshare.tools.bench", "detshare.tools.layers", "detshare.tools.vm")
"""what measures and checks the product is no part of it, and may import tests and bench"""

HERE: Final = "tools/detshare/tools/layers/imports.py"
CIRCLE: Final = 4

KNOWN: Final[Mapping[str, str]] = {}
"""What breaks a rule and stays for now (as the message says it, without line and rule) -> why."""

_RANK: Final = {room: rank for rank, row in enumerate(ORDER) for room in row}


@dataclass(frozen=True, slots=True)
class _Edge:
    path: Path
    line: int
    source: str
    target: str

    @property
    def key(self) -> str:
        return f"{self.path} -> {self.target}"


def check(root: Path) -> list[str]:
    """One line for each breach in the checkout at `root`. [] is good."""
    return problems(root, KNOWN)


def problems(root: Path, known: Mapping[str, str]) -> list[str]:
    """The same with other known breaches."""
    modules = dict(_modules(root))
    edges = [edge for module, path in modules.items() for edge in _edges(root, module, path, modules)]
    found: dict[str, str] = {}
    for edge in edges:
        if said := _upward(edge) or _outside(edge):
            found.setdefault(edge.key, f"{edge.path}:{edge.line} -> {edge.target}: {said}")
    for circle in _circles(modules, edges):
        key = " - ".join(circle)
        first = next(each for each in edges if each.source in circle and each.target in circle)
        said = f"in a circle of {len(circle)} files; {CIRCLE} are the most: {key}"
        found[key] = f"{first.path}:{first.line} -> {first.target}: {said}"
    found |= _misplaced(root)
    gone = [f"{key}: known in {HERE}, but not there any more" for key in known if key not in found]
    return sorted([said for key, said in found.items() if key not in known] + gone)


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    for part in PARTS:
        for path in sorted((root / part / "detshare").rglob("*.py")):
            words = path.relative_to(root / part).with_suffix("").parts
            yield ".".join(words[:-1] if words[-1] == "__init__" else words), path.relative_to(root)


def _edges(root: Path, module: str, path: Path, modules: Mapping[str, Path]) -> Iterator[_Edge]:
    for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                base = ".".join([*here[: len(here) - node.level + 1], *([base] if base else [])])
            names = [f"{base}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Call):
            names = _by_name(node)
        else:
            continue
        for name in names:
            target = name if _below(name, "tests") else next((each for each in _ancestors(name) if each in modules), "")
            if target and target != module:
                yield _Edge(path, node.lineno, module, target)


def _by_name(call: ast.Call) -> list[str]:
    """What import_module("a.b") and __import__("a.b") import; nothing for another call, or a name that is computed."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if called in ("import_module", "__import__") and call.args else None
    return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []


def _ancestors(name: str) -> Iterator[str]:
    """The name itself first."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _room(module: str) -> str | None:
    inner = module.removeprefix("detshare").removeprefix(".")
    return next((each for each in _ancestors(inner) if each in _RANK), None) if inner else ""


def _upward(edge: _Edge) -> str:
    """What is wrong about the rooms of an import; empty where nothing is."""
    if _below(edge.target, "tests"):
        return ""
    source, target = _room(edge.source), _room(edge.target)
    if source is None or target is None:
        return f"{edge.source if source is None else edge.target} is in no room of {HERE}"
    if source == target:
        return ""
    if _RANK[target] >= _RANK[source]:
        return f"upward: {source or 'detshare'} may not know {target or 'detshare'}"
    if source in ONLY and target not in ONLY[source]:
        return f"{source} may know {' and '.join(sorted(ONLY[source]))} only"
    return ""


def _outside(edge: _Edge) -> str:
    if any(_below(edge.source, each) for each in BESIDE):
        return ""
    wrong = next((each for each in ("tests", "detshare.tools.bench") if _below(edge.target, each)), None)
    return f"the product may not import {wrong}" if wrong else ""


def _circles(modules: Iterable[str], edges: Iterable[_Edge]) -> Iterator[list[str]]:
    """Sets of more than CIRCLE files each of which reaches all others."""
    after: dict[str, set[str]] = {module: set() for module in modules}
    for edge in edges:
        if edge.target in after:
            after[edge.source].add(edge.target)
    return (circle for circle in circles(after) if len(circle) > CIRCLE)


def _misplaced(root: Path) -> dict[str, str]:
    """Path -> what is said about Python beside a part's C, and about C of runtime or ebpf among its Python."""
    found = {}
    for part in PARTS:
        python = root / part / "detshare"
        for path in sorted(each for each in (root / part).rglob("*.py") if not each.is_relative_to(python)):
            found[str(path.relative_to(root))] = f"{path.relative_to(root)}:1: Python of {part} lies in {part}/detshare"
    for part in ("runtime", "ebpf"):
        for path in sorted(each for each in (root / part / "detshare").rglob("*.[ch]")):
            name = str(path.relative_to(root))
            found[name] = f"{name}:1: C of {part} lies outside {part}/detshare, which is Python's"
    return found
