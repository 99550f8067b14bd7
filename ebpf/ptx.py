# SPDX-License-Identifier: Apache-2.0
"""PTX modules: their kernels and functions, parameters and statements. What a kernel writes is found by ptx_flow."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

_NOISE = re.compile(
    r"//[^\n]*"
    r"|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|\.loc\s+\d+\s+\d+\s+\d+(?:\s*,\s*function_name\s+[^,]*,\s*inlined_at\s+\d+\s+\d+\s+\d+)?",
    re.DOTALL,
)
_NAME = r"[\w$%]+"
_ENTRY = re.compile(rf"\.entry\s+({_NAME})\s*(?:\(([^)]*)\))?[^{{;]*\{{", re.DOTALL)
_FUNCTION = re.compile(
    rf"\.func\s+(?:\.attribute\s*\([^;{{]*?\)\s*\)\s*)?(?:\(([^)]*)\)\s*)?({_NAME})\s*(?:\(([^)]*)\))?[^{{;]*\{{",
    re.DOTALL,
)
_VARIABLE = re.compile(rf"(?<![\w.])\.(global|shared|const|local)\s[^;={{(\[),]*?({_NAME})\s*(?:\[[^;={{]*)?[;={{]")
_TARGET = re.compile(r"\.target\s+sm_(\d+[a-z]?)")
_NARROW = re.compile(r"\.address_size\s+32\b")
_PARAM = re.compile(rf"\.param\s+(?P<what>[^,]*?)\s(?P<name>{_NAME})\s*(?:\[(?P<count>\d*)\])?\s*$", re.DOTALL)
_LAST_NAME = re.compile(rf"({_NAME})\s*(?:\[[^\]]*\])?\s*$")
_ALIGN = re.compile(r"\.align\s+(\d+)")
_TYPE = re.compile(r"\.[busf](8|16|32|64)\b")
_VECTOR = re.compile(r"\{([^{};]*[^\s{};][^{};]*)\}")
_LABEL = re.compile(r"^(?:[\w$%]+\s*:\s*)+")
_GUARD = re.compile(r"^@\s*!?\s*[\w$%]+\s+")
_OPERAND = re.compile(r"\([^)]*\)|\[[^\]]*\]|[^,\[\]()]+")


@dataclass(frozen=True, slots=True)
class Word:
    """A place of a kernel's parameters that may hold an address that is written from.

    `size`: 8, or of a run of bytes in which one may lie at every multiple of four, counted from its begin.
    """

    parameter: int
    offset: int
    packed: int
    """offset in the buffer of all parameters"""
    size: int = 8


@dataclass(frozen=True, slots=True)
class Kernel:
    """`anywhere`: why it may write to memory that its parameters do not name; empty when it may not.

    `assumed`: why that is not certain; empty when it is.
    """

    name: str
    parameters: int
    words: tuple[Word, ...]
    anywhere: str = ""
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of a kernel. `packed`: its offset in the buffer of all."""

    number: int
    size: int
    packed: int


@dataclass(frozen=True, slots=True)
class Statement:
    """`code`: the instruction with its suffixes; `kind`: without. Vectors are operands in parentheses."""

    code: str
    kind: str
    operands: tuple[str, ...]
    rest: str


@dataclass(slots=True)
class Body:
    """What runs when a kernel or a function is called. `back`, `formal`: names in its head, of functions only."""

    statements: list[Statement]
    variables: dict[str, str] = field(default_factory=dict)
    """declared in it: name -> state space"""
    back: list[str] = field(default_factory=list)
    formal: list[str] = field(default_factory=list)


class Module:
    """One PTX text. Nothing is looked at before it is asked for."""

    def __init__(self, text: str) -> None:
        self._text = _NOISE.sub(" ", text)
        found = _TARGET.search(self._text)
        self.target = found[1] if found else ""
        """as "90" or "90a"; empty where it is not said"""
        self._entries = {match[1]: match for match in _ENTRY.finditer(self._text)}
        self._functions = {match[2]: match for match in _FUNCTION.finditer(self._text)}
        self._bodies: dict[str, Body] = {}
        self.known: dict[str, Kernel | None] = {}
        """for ptx_flow"""
        self.narrow = bool(_NARROW.search(self._text))
        """addresses of 32 bits"""
        self.variables = _variables(self._text)

    @property
    def names(self) -> list[str]:
        """Its kernels."""
        return list(self._entries)

    def function(self, name: str) -> Body | None:
        """A function that kernels may call; None: it is not in this module."""
        match = self._functions.get(name)
        if match is None:
            return None
        if name not in self._bodies:
            made = _body(_block(self._text, match.end()))
            made.back, made.formal = _names(match[1]), _names(match[3])
            self._bodies[name] = made
        return self._bodies[name]

    def entry(self, name: str) -> tuple[dict[str, Parameter] | None, Body] | None:
        """Parameters of a kernel, None where they are not understood, and its body. None: there is no such kernel."""
        match = self._entries.get(name)
        if match is None:
            return None
        return _parameters(match[2]), _body(_block(self._text, match.end()))


@lru_cache(maxsize=1 << 12)
def width(code: str) -> int:
    """Bits of what an instruction makes: of its first type, twice as many where it says so; 64 where it has none."""
    if ".b128" in code:
        return 128
    match = _TYPE.search(code)
    bits = int(match[1]) if match else 64
    return 2 * bits if ".wide" in code else bits


def _variables(text: str) -> dict[str, str]:
    return {match[2]: match[1] for match in _VARIABLE.finditer(text)}


def _names(text: str | None) -> list[str]:
    matches = (_LAST_NAME.search(part.strip()) for part in (text or "").split(",") if part.strip())
    return [match[1] if match else "" for match in matches]


def _block(text: str, begin: int) -> str:
    depth, at = 1, begin
    for match in re.compile(r"[{}]").finditer(text, begin):
        depth += 1 if match[0] == "{" else -1
        at = match.end()
        if not depth:
            return text[begin : at - 1]
    return text[begin:]


def _parameters(text: str | None) -> dict[str, Parameter] | None:
    found: dict[str, Parameter] = {}
    packed = 0
    for number, piece in enumerate(part for part in (text or "").split(",") if part.strip()):
        match = _PARAM.search(piece.strip())
        kind = _TYPE.search(piece)
        if match is None or kind is None:
            return None
        element = int(kind[1]) // 8
        size = element * int(match["count"] or 1) if match["count"] is not None else element
        align = _ALIGN.search(piece) if match["count"] is not None else None
        step = max(int(align[1]) if align else 1, element)
        packed = (packed + step - 1) // step * step
        found[match["name"]] = Parameter(number, size, packed)
        packed += size
    return found


def _body(block: str) -> Body:
    statements = []
    # vectors of registers in parentheses, so that braces are blocks only
    for piece in re.split(r"[;{}]", _VECTOR.sub(r"(\1)", block)):
        text = _GUARD.sub("", _LABEL.sub("", piece.strip()))
        code, *rest = text.split(None, 1) if text else [""]
        if not code or code.startswith("."):
            continue
        after = rest[0] if rest else ""
        operands = tuple(each.strip() for each in _OPERAND.findall(after) if each.strip())
        statements.append(Statement(code, code.split(".")[0], operands, after))
    return Body(statements, _variables(block))
