# SPDX-License-Identifier: Apache-2.0
"""Read runtime/board.json and compute where each field lies. No compiler decides: padding must be written down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SCALARS", "SOURCE", "BadBoard", "Constant", "Field", "Layout", "Packed", "Part", "Struct", "load"]

SOURCE = Path("runtime/board.json")
SCALARS = {"u8": 1, "char": 1, "u32": 4, "s32": 4, "u64": 8}


class BadBoard(ValueError):
    """board.json says something that has no layout; the text names it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that both sides name."""

    name: str
    value: int
    text: str
    doc: str


@dataclass(frozen=True, slots=True)
class Part:
    """Some bits of a packed word."""

    name: str
    shift: int
    bits: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A u64 that is loaded and stored whole."""

    name: str
    doc: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """`count` is None for a single value. `bytes` is the size of all elements together."""

    name: str
    type: str
    count: int | None
    offset: int
    bytes: int
    doc: str


@dataclass(frozen=True, slots=True)
class Struct:
    """`used` is where the last field ends; up to `size` the bytes are zero."""

    name: str
    size: int
    align: int
    used: int
    doc: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """All of board.json."""

    constants: tuple[Constant, ...]
    packed: tuple[Packed, ...]
    structs: tuple[Struct, ...]


def _constant(entry: dict[str, Any]) -> Constant:
    value = entry["value"]
    return Constant(entry["name"], int(value, 0) if isinstance(value, str) else value, str(value), entry["doc"])


def _packed(entry: dict[str, Any]) -> Packed:
    parts = tuple(Part(p["name"], p["shift"], p["bits"]) for p in entry["parts"])
    taken = 0
    for part in parts:
        mask = ((1 << part.bits) - 1) << part.shift
        if mask & taken or mask >> 64:
            raise BadBoard(f"{entry['name']}.{part.name} overlaps another part or leaves 64 bits")
        taken |= mask
    return Packed(entry["name"], entry["doc"], parts)


def _struct(entry: dict[str, Any], known: dict[str, Struct]) -> Struct:
    name, offset = entry["name"], 0
    fields: list[Field] = []
    for item in entry["fields"]:
        what, of, count = f"{name}.{item['name']}", item["type"], item.get("count")
        if of not in SCALARS and of not in known:
            raise BadBoard(f"{what} has the unknown type {of}")
        size = SCALARS[of] if of in SCALARS else known[of].size
        align = size if of in SCALARS else known[of].align
        if offset % align:
            raise BadBoard(f"{what} would lie at {offset}, not a multiple of {align}: write the padding down")
        if any(field.name == item["name"] for field in fields):
            raise BadBoard(f"{what} is there twice")
        fields.append(Field(item["name"], of, count, offset, size * (count or 1), item["doc"]))
        offset += size * (count or 1)
    if offset > entry["size"]:
        raise BadBoard(f"{name} takes {offset} bytes of its {entry['size']}")
    if entry["size"] % entry["align"]:
        raise BadBoard(f"{name}: size {entry['size']} is no multiple of its alignment {entry['align']}")
    return Struct(name, entry["size"], entry["align"], offset, entry["doc"], tuple(fields))


def load(root: Path) -> Layout:
    """The layout that board.json below `root` describes; BadBoard if it cannot be."""
    data = json.loads((root / SOURCE).read_text())
    known: dict[str, Struct] = {}
    try:
        for entry in data["structs"]:
            known[entry["name"]] = _struct(entry, known)
        return Layout(
            tuple(_constant(entry) for entry in data["constants"]),
            tuple(_packed(entry) for entry in data["packed"]),
            tuple(known.values()),
        )
    except KeyError as missing:
        raise BadBoard(f"an entry lacks {missing}") from None
