# SPDX-License-Identifier: Apache-2.0
"""Reads runtime/api.json and says what is wrong with it."""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from pathlib import Path

API = Path("runtime/api.json")
NAME = re.compile(r"cu[A-Z]\w*")
FIELDS = {"name", "params", "kind", "stream", "per_thread", "use"}


class BadApi(ValueError):
    """runtime/api.json cannot be used; the text says where and why."""


class Kind(enum.StrEnum):
    """What libdetshare.so does with an entry point."""

    NONE = "none"  # not wrapped
    FOLLOW = "follow"  # goes to where the stream's last work went
    HOME = "home"  # the stream goes back to the program's own handle first
    LEGACY = "legacy"  # as home, for the default stream that the call uses without naming it
    PLAIN = "plain"  # let through, once the driver may be called
    MEMORY = "memory"  # names memory, which is to be on the GPU
    ROOM = "room"  # the driver may take memory of its own for it, and waits for room
    CONTEXT = "context"  # another context may be current in the calling thread afterwards
    LAUNCH = "launch"  # written by hand: asks for the tier of now
    SYNC = "sync"  # written by hand: waits or asks for the end of work
    SPECIAL = "special"  # written by hand: everything else


GENERATED = {Kind.PLAIN, Kind.FOLLOW, Kind.HOME, Kind.LEGACY, Kind.MEMORY, Kind.ROOM, Kind.CONTEXT}


@dataclass(frozen=True)
class Function:
    """One exported symbol of libcuda.so.1 that returns a CUresult."""

    name: str
    params: tuple[str, ...]
    kind: Kind
    stream: int | None
    per_thread: bool
    use: bool

    @property
    def wrapped(self) -> bool:
        """Whether libdetshare.so exports a symbol of this name."""
        return self.kind is not Kind.NONE

    @property
    def called(self) -> bool:
        """Whether libdetshare.so calls the driver's own one."""
        return self.wrapped or self.use


def function(entry: dict[str, object]) -> Function:
    """One checked entry of api.json."""
    name = entry.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadApi(f"{name!r} is no name of an entry point")
    if unknown := entry.keys() - FIELDS:
        raise BadApi(f"{name}: unknown fields {', '.join(sorted(unknown))}")
    params = entry.get("params")
    if not isinstance(params, list) or not all(isinstance(one, str) for one in params):
        raise BadApi(f"{name}: params is not a list of C types")
    try:
        kind = Kind(str(entry.get("kind")))
    except ValueError as error:
        raise BadApi(f"{name}: kind {entry.get('kind')!r} is not one of {', '.join(Kind)}") from error
    stream = entry.get("stream")
    if stream is not None and (
        not isinstance(stream, int) or stream >= len(params) or params[stream] not in ("CUstream", "CUstream *")
    ):
        raise BadApi(f"{name}: parameter {stream} is no stream")
    if kind in (Kind.FOLLOW, Kind.HOME) and stream is None:
        raise BadApi(f"{name}: kind {kind} needs the index of a stream parameter")
    if kind is Kind.FOLLOW and params[int(str(stream))] != "CUstream":
        raise BadApi(f"{name}: kind follow needs a stream passed by value")
    per_thread, use = entry.get("per_thread", False), entry.get("use", False)
    if not isinstance(per_thread, bool) or not isinstance(use, bool):
        raise BadApi(f"{name}: per_thread and use are true or absent")
    return Function(name, tuple(params), kind, stream, per_thread, use)


def load(root: Path) -> list[Function]:
    """All entry points of the checkout at `root`; BadApi, or OSError where the file cannot be read."""
    try:
        document = json.loads((root / API).read_text())
        entries = document["functions"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise BadApi(f"{API} is not JSON with a list of functions: {error}") from error
    functions = [function(entry) for entry in entries]
    names = [one.name for one in functions]
    if double := {name for name in names if names.count(name) > 1}:
        raise BadApi(f"named twice: {', '.join(sorted(double))}")
    return functions
