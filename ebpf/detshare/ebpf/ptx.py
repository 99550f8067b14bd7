# SPDX-License-Identifier: Apache-2.0
"""PTX modules: their kernels and functions, parameters and statements. What a kernel writes is found by ptx_flow."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

# Images are whatever a program hands to the driver: no pattern may take more than linear time.
_NOISE = re.compile(
    r"//[^\n]*+"
    r"|/\*(?:.*?\*/|.*+)"
    r'|"(?:\\.|[^"\\\n])*+"?'
    r"|\.loc\s++\d++\s++\d++\s++\d++(?:\s*+,\s*+function_name\s++[^,;]*+,\s*+inlined_at\s++\d++\s++\d++\s++\d++)?",
    re.DOTALL,
)
_HEADS = re.compile(r"\.entry\b|\.func\b|[{};]")
_NAME = r"[\w$%]++"
_ENTRY = re.compile(rf"\s*+({_NAME})\s*+(?:\(([^)]*+)\))?")
_FUNCTION = re.compile(rf"\s*+(?:\(([^)]*+)\)\s*+)?({_NAME})\s*+(?:\(([^)]*+)\))?")
_ATTRIBUTE = re.compile(r"\s*+\.attribute\s*+\([^;{)]*+\)\s*+\)")
_SPACE = re.compile(r"(?:^|(?<=\s))\.(global|shared|const|local)\s")
_TARGET = re.compile(r"\.target\s++sm_(\d++[a-z]?)")
_NARROW = re.compile(r"\.address_size\s++32\b")
_PARAM = re.compile(rf"\.param\s.*?({_NAME})\s*+(?:\[(\d*+)\]\s*+)?$", re.DOTALL)
_LAST_NAME = re.compile(rf"({_NAME})\s*+(?:\[[^\]]*+\]\s*+)*+$")
_ALIGN = re.compile(r"\.align\s++(\d++)")
_TYPE = re.compile(r"\.[busf](8|16|32|64)\b")
_VECTOR = re.compile(r"\{([^{};]++)\}")
_LABEL = re.compile(r"(?:[\w$%]++\s*+:\s*+)+")
_GUARD = re.compile(r"@\s*+!?\s*+[\w$%]++\s++")
_OPERAND = re.compile(r"\([^)]*+\)?|\[[^\]]*+\]?|[^,\[\]()]++")
_LONGEST = 4096
"""characters of a parameter, of a declaration, and of a statement's operands; more is not understood"""


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
    """One PTX text. No kernel is looked at before it is asked for."""

    def __init__(self, text: str) -> None:
        self._text = _NOISE.sub(" ", text)
        found = _TARGET.search(self._text)
        self.target = found[1] if found else ""
        """as "90" or "90a"; empty where it is not said"""
        self.narrow = bool(_NARROW.search(self._text))
        """addresses of 32 bits"""
        self._entries: dict[str, tuple[str | None, int, int]] = {}
        self._functions: dict[str, tuple[list[str], list[str], int, int]] = {}
        self.variables: dict[str, str] = {}
        self._bodies: dict[str, Body] = {}
        self.known: dict[str, Kernel | None] = {}
        """for ptx_flow"""
        self._read()

    def _read(self) -> None:
        """Finds heads and blocks in one pass, and the variables in between."""
        text, depth, after, begin = self._text, 0, 0, 0
        head: re.Match[str] | None = None
        for match in _HEADS.finditer(text):
            if match[0] == "{":
                begin = begin if depth else match.end()
                depth += 1
            elif match[0] == "}":
                depth -= 1
                if depth <= 0:
                    self._take(head, begin, match.start())
                    self.variables |= _variables(text[after : begin - 1]) if head is None else {}
                    head, depth, after = None, 0, match.end()
            elif not depth and match[0] == ";":
                head = None
                self.variables |= _variables(text[after : match.start()])
                after = match.end()
            elif not depth:
                head = match
        if depth:
            self._take(head, begin, len(text))

    def _take(self, head: re.Match[str] | None, begin: int, end: int) -> None:
        if head is None:
            return
        start = head.end()
        if head[0] == ".entry":
            if found := _ENTRY.match(self._text, start, begin):
                self._entries[found[1]] = found[2], begin, end
            return
        if attribute := _ATTRIBUTE.match(self._text, start, begin):
            start = attribute.end()
        if function := _FUNCTION.match(self._text, start, begin):
            self._functions[function[2]] = _names(function[1]), _names(function[3]), begin, end

    @property
    def names(self) -> list[str]:
        """Its kernels."""
        return list(self._entries)

    def function(self, name: str) -> Body | None:
        """A function that kernels may call; None: it is not in this module."""
        if name not in self._functions:
            return None
        if name not in self._bodies:
            back, formal, begin, end = self._functions[name]
            made = _body(self._text[begin:end])
            made.back, made.formal = back, formal
            self._bodies[name] = made
        return self._bodies[name]

    def entry(self, name: str) -> tuple[dict[str, Parameter] | None, Body] | None:
        """Parameters of a kernel, None where they are not understood, and its body. None: there is no such kernel."""
        if name not in self._entries:
            return None
        parameters, begin, end = self._entries[name]
        return _parameters(parameters), _body(self._text[begin:end])


@lru_cache(maxsize=1 << 12)
def width(code: str) -> int:
    """Bits of what an instruction makes: of its first type, twice as many where it says so; 64 where it has none."""
    if ".b128" in code:
        return 128
    match = _TYPE.search(code)
    bits = int(match[1]) if match else 64
    return 2 * bits if ".wide" in code else bits


def _variables(text: str) -> dict[str, str]:
    """Of declarations that end with a semicolon each: name -> state space."""
    found: dict[str, str] = {}
    for piece in text.split(";"):
        space = _SPACE.search(piece, 0, _LONGEST)
        if space is None:
            continue
        name = _LAST_NAME.search(re.split("[={]", piece[space.end() : space.end() + _LONGEST], maxsplit=1)[0].strip())
        if name:
            found[name[1]] = space[1]
    return found


def _names(text: str | None) -> list[str]:
    matches = (_LAST_NAME.search(part.strip()[-_LONGEST:]) for part in (text or "").split(",") if part.strip())
    return [match[1] if match else "" for match in matches]


def _parameters(text: str | None) -> dict[str, Parameter] | None:
    found: dict[str, Parameter] = {}
    packed = 0
    for number, piece in enumerate(part for part in (text or "").split(",") if part.strip()):
        piece = piece.strip()
        match = _PARAM.match(piece) if len(piece) <= _LONGEST else None
        kind = _TYPE.search(piece)
        if match is None or kind is None:
            return None
        element = int(kind[1]) // 8
        size = element * int(match[2] or 1) if match[2] is not None else element
        align = _ALIGN.search(piece) if match[2] is not None else None
        step = max(int(align[1]) if align else 1, element)
        packed = (packed + step - 1) // step * step
        found[match[1]] = Parameter(number, size, packed)
        packed += size
    return found


def _body(block: str) -> Body:
    statements = []
    # vectors of registers in parentheses, so that braces are blocks only
    flat = _VECTOR.sub(lambda match: f"({match[1]})" if match[1].strip() else match[0], block)
    pieces = [piece.strip() for piece in re.split(r"[;{}]", flat)]
    for piece in pieces:
        label = _LABEL.match(piece)
        text = piece[label.end() :] if label else piece
        guard = _GUARD.match(text)
        code, *rest = (text[guard.end() :] if guard else text).split(None, 1) or [""]
        if not code or code.startswith("."):
            continue
        after = rest[0] if rest else ""
        if len(code) + len(after) > _LONGEST:
            code, after = "a statement that is too long", ""
        operands = tuple(each.strip() for each in _OPERAND.findall(after) if each.strip())
        statements.append(Statement(code, code.split(".")[0], operands, after))
    return Body(statements, _variables(";".join(pieces)))
