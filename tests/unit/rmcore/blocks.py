# SPDX-License-Identifier: Apache-2.0
"""Driver structures as bytes, from the ABI data and not from the tables that are under test."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from detshare.tools.abi.generator import load

VERSIONS: Final = ("535.288.01", "550.163.01", "570.211.01", "580.65.06", "580.142", "590.48.01", "595.45.04")
REFERENCE: Final = "580.142"


@cache
def data(name: str) -> dict[str, Any]:
    """One of the data files."""
    return load(name)


def number(name: str, version: str = REFERENCE) -> int:
    """A class, control, UVM ioctl, status or constant by its name."""
    for table, key in (("classes", "num"), ("uvm_ioctls", "nr")):
        entry = data(table)[version].get(name)
        if entry is not None:
            return int(entry[key])
    for table in ("constants", "status"):
        if name in data(table)[version]:
            return int(data(table)[version][name])
    return next(int(control["id"]) for control in data("controls")[version] if control["name"] == name)


def has(struct: str, version: str) -> bool:
    """Does the version have the structure?"""
    return version in data("structs")[struct]


def size(struct: str, version: str = REFERENCE) -> int:
    """Bytes of a structure."""
    return int(data("structs")[struct][version]["size"])


def member(struct: str, name: str, version: str = REFERENCE) -> tuple[int, int]:
    """(offset, bytes) of a member."""
    for offset, width, field, _kind in data("structs")[struct][version]["fields"]:
        if field == name:
            return int(offset), int(width)
    raise KeyError(f"{struct} of {version} has no {name}")


def pack(struct: str, values: dict[str, int], version: str = REFERENCE, fill: int = 0) -> bytearray:
    """A structure with these members (dots in names as __), all else filled with one byte."""
    block = bytearray([fill]) * size(struct, version)
    for name, value in values.items():
        offset, width = member(struct, name, version)
        block[offset : offset + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return block


def unpack(struct: str, block: bytes, name: str, version: str = REFERENCE) -> int:
    """A member's value."""
    offset, width = member(struct, name, version)
    return int.from_bytes(block[offset : offset + width], "little")
