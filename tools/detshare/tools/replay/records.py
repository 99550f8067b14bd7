# SPDX-License-Identifier: Apache-2.0
"""Recorded traces: one JSON object a line, an ioctl or an mmap of a program on the NVIDIA device files."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Call", "Mapping", "Record", "TraceError", "read"]


class TraceError(ValueError):
    """The file is no trace; the text names the line."""


@dataclass(frozen=True, slots=True)
class Call:
    """An ioctl: its block before and after, and the nested parameters before and after (empty: none recorded)."""

    seq: int
    fd: int
    path: str
    nr: int
    request: int
    ret: int
    before: bytes
    after: bytes
    nested_before: bytes
    nested_after: bytes


@dataclass(frozen=True, slots=True)
class Mapping:
    """An mmap of one of the files."""

    seq: int
    fd: int
    path: str
    address: int
    length: int
    prot: int
    flags: int
    offset: int


Record = Call | Mapping


def _hex(line: dict[str, Any], key: str) -> bytes:
    return bytes.fromhex(line.get(key) or "")


def _record(line: dict[str, Any]) -> Record:
    common = (int(line["seq"]), int(line["fd"]), str(line["path"]))
    if "mmap" in line:
        return Mapping(
            *common, int(line["mmap"]), int(line["len"]), int(line["prot"]), int(line["flags"]), int(line["off"])
        )
    nested = _hex(line, "pin")
    # the recorder leaves out nested bytes that the call did not change
    return Call(
        *common,
        # UVM's ioctls are plain numbers, wider than the eight bits that an escape has
        nr=int(line["req"] if line["path"] == "/dev/nvidia-uvm" else line["nr"]),
        request=int(line["req"]),
        ret=int(line["ret"]),
        before=_hex(line, "in"),
        after=_hex(line, "out"),
        nested_before=nested,
        nested_after=_hex(line, "pout") or nested,
    )


def read(path: Path) -> list[Record]:
    """All records of a trace, plain or .gz, in order. Raises OSError, TraceError."""
    opener = gzip.open if path.suffix == ".gz" else open
    records: list[Record] = []
    with opener(path, "rt", encoding="utf-8") as stream:
        for number, text in enumerate(stream, 1):
            try:
                records.append(_record(json.loads(text)))
            except (ValueError, KeyError, TypeError) as error:
                raise TraceError(f"{path}, line {number}: no record of a trace ({error!r})") from error
    if not records:
        raise TraceError(f"{path} holds no record")
    return records
