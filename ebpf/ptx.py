# SPDX-License-Identifier: Apache-2.0
"""What a kernel may write, from its PTX: the parameters whose values reach the address of a store.

Conservative: what is not understood counts as a write to anywhere. An address that comes out of memory as 64 bits may
point anywhere too; a loaded index, which is multiplied or shifted before it is added, stays in what it is an index of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?[^{;]*\{", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?P<what>[^,]*?)\s(?P<name>[\w$]+)\s*(?:\[(?P<count>\d*)\])?\s*$", re.DOTALL)
_ALIGN = re.compile(r"\.align\s+(\d+)")
_TYPE = re.compile(r"\.[busf](8|16|32|64)\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SYMBOL = re.compile(r"[%$\w]+")
_MEMORY = ("", "*")  # the source: a word of 64 bits that was read from memory
_MASKED = ("", "!")  # the same after bits were taken off, as from a tagged address: scaling makes no index of it
_WRITES = ("st", "atom", "red")
_UNKNOWN = (
    "call",
    "sust",
    "sured",
    "cp",
    "wmma",
    "stmatrix",
    "multimem",
    "tensormap",
    "mbarrier",
    "tcgen05",
    "discard",
    "clusterlaunchcontrol",
)
_SCALING = ("mul", "shl", "div", "rem", "popc", "clz", "setp", "set")
_MASKING = ("shr", "and", "bfe", "prmt", "lop3", "bfi")


@dataclass(frozen=True, slots=True)
class Word:
    """A place of a kernel's parameters that may hold an address that is written from."""

    parameter: int
    offset: int
    packed: int
    """offset in the buffer of all parameters"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """`anywhere`: why it may write to memory that its parameters do not name; empty when it may not."""

    name: str
    parameters: int
    words: tuple[Word, ...]
    anywhere: str = ""


@dataclass(slots=True)
class _Parameter:
    number: int
    size: int
    packed: int


@dataclass(slots=True)
class _Body:
    parameters: dict[str, _Parameter]
    registers: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    written: set[tuple[str, str]] = field(default_factory=set)
    anywhere: str = ""


def kernels(text: str) -> dict[str, Kernel]:
    """Every kernel of a PTX module by name."""
    text = _COMMENT.sub(" ", text)
    return {match[1]: _kernel(match, _block(text, match.end())) for match in _ENTRY.finditer(text)}


def _block(text: str, begin: int) -> str:
    depth, at = 1, begin
    while depth and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[begin : at - 1]


def _parameters(text: str | None) -> dict[str, _Parameter] | None:
    found: dict[str, _Parameter] = {}
    packed = 0
    for number, piece in enumerate(part for part in (text or "").split(",") if part.strip()):
        match = _PARAM.search(piece.strip())
        width = _TYPE.search(piece)
        if match is None or width is None:
            return None
        element = int(width[1]) // 8
        size = element * int(match["count"] or 1) if match["count"] is not None else element
        align = _ALIGN.search(piece) if match["count"] is not None else None
        step = max(int(align[1]) if align else 1, element)
        packed = (packed + step - 1) // step * step
        found[match["name"]] = _Parameter(number, size, packed)
        packed += size
    return found


def _kernel(match: re.Match[str], block: str) -> Kernel:
    parameters = _parameters(match[2])
    if parameters is None:
        return Kernel(match[1], 0, (), "its parameters are not understood")
    body = _Body(parameters)
    statements = [each.strip() for each in re.split(r"[;{}]\s*(?![^{}]*\}\s*,)", _flat(block)) if each.strip()]
    # until nothing new flows: loops carry values backwards
    before = -1
    while before != (before := _weight(body)) or not body.registers:
        for statement in statements:
            _follow(body, statement)
        if _weight(body) == before:
            break
    words = _words(body)
    return Kernel(match[1], len(parameters), tuple(sorted(words, key=lambda each: each.packed)), body.anywhere)


def _weight(body: _Body) -> int:
    return sum(map(len, body.registers.values())) + len(body.written) + bool(body.anywhere)


def _flat(block: str) -> str:
    """Vectors of registers in parentheses, so that braces are blocks only."""
    return re.sub(r"\{\s*([%\w$]+(?:\s*,\s*[%\w$]+)*)\s*\}", r"(\1)", block)


def _follow(body: _Body, statement: str) -> None:
    statement = re.sub(r"^(?:[\w$]+:\s*)+", "", statement)
    statement = re.sub(r"^@!?%[\w$]+\s+", "", statement)
    code, _, rest = statement.partition(" ")
    if not rest or code.startswith("."):
        return
    kind = code.split(".")[0]
    if kind in _UNKNOWN:
        _unknown(body, code)
        return
    operands = _operands(rest)
    if kind in _WRITES:
        if ".shared" in code or ".local" in code or ".param" in code:
            _assign(body, operands[:1] if kind == "atom" else [], set())
            return
        target = next((each for each in operands if each.startswith("[")), "")
        body.written |= _sources(body, target.strip("[]"))
        if body.written & {_MEMORY, _MASKED}:
            body.anywhere = body.anywhere or "it writes where an address in memory points to"
        if kind == "atom":
            _assign(body, operands[:1], {_MEMORY} if "64" in code else set())
        return
    if kind in ("ld", "ldu", "tex", "tld4", "suld"):
        _load(body, code, operands)
        return
    inputs: set[tuple[str, str]] = set()
    for each in operands[1:]:
        inputs |= _sources(body, each)
    if kind in _SCALING:
        inputs = {each for each in inputs if each != _MEMORY}
    if kind in _MASKING and _MEMORY in inputs:
        inputs = {*inputs, _MASKED}
    if kind in ("mad", "fma"):
        inputs = {each for each in inputs if each != _MEMORY} | _sources(body, operands[-1])
    _assign(body, operands[:1], inputs)


def _operands(rest: str) -> list[str]:
    return [each.strip() for each in re.findall(r"\([^)]*\)|\[[^\]]*\]|[^,\[\]()]+", rest) if each.strip()]


def _sources(body: _Body, operand: str) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for name in _SYMBOL.findall(operand):
        found |= body.registers.get(name, set())
        if name in body.parameters:
            found.add((name, "*"))  # its address was taken
    return found


def _assign(body: _Body, targets: list[str], sources: set[tuple[str, str]]) -> None:
    for target in targets:
        for name in _SYMBOL.findall(target):
            body.registers.setdefault(name, set()).update(sources)


def _load(body: _Body, code: str, operands: list[str]) -> None:
    address = operands[1].strip("[] ") if len(operands) > 1 else ""
    if ".param" in code:
        match = re.fullmatch(r"([\w$]+)\s*(?:\+\s*(\d+))?", address)
        if match and match[1] in body.parameters:
            width = _TYPE.search(code)
            step = int(width[1]) // 8 if width else 8
            targets = _SYMBOL.findall(operands[0])
            for number, target in enumerate(targets):
                _assign(body, [target], {(match[1], str(int(match[2] or 0) + number * step))})
            return
        _assign(body, operands[:1], _sources(body, address))
        return
    # a local copy of a struct parameter may hold its pointers; shared memory what another thread put there
    wide = "64" in code or "128" in code
    packs = "32" in code and len(_SYMBOL.findall(operands[0])) > 1
    _assign(body, operands[:1], {_MEMORY} if wide or packs else set())


def _unknown(body: _Body, code: str) -> None:
    if code.startswith("cp.async") and "bulk" not in code:
        return  # to shared memory only
    if code.startswith(("wmma.load", "wmma.mma", "mbarrier")):
        return
    body.anywhere = body.anywhere or f"it uses {code.split('.')[0]}"


def _words(body: _Body) -> set[Word]:
    found: set[Word] = set()
    for name, where in body.written:
        if not name:
            continue
        parameter = body.parameters[name]
        offsets = range(max(parameter.size - 7, 0)) if where == "*" else [int(where)]
        for offset in offsets:
            if offset + 8 <= parameter.size:
                found.add(Word(parameter.number, offset, parameter.packed + offset))
    return found
