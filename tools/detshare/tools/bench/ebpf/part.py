# SPDX-License-Identifier: Apache-2.0
"""A part of a measurement: a process of its own that prints lines of JSON. One that hangs takes nothing along."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from detshare.tools.bench.lines import Line

__all__ = ["Line", "Part", "PartError", "main", "of", "say"]


class PartError(RuntimeError):
    """A part could not be measured; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Part:
    """`run(quick)` measures it. `seconds`: after so long it is ended, and what it printed until then counts."""

    run: Callable[[bool], None]
    seconds: float
    example: str = ""


def say(event: str, **fields: Any) -> None:
    """One line."""
    print(json.dumps({"event": event, **fields}, separators=(",", ":"), default=str), flush=True)


def of(lines: list[Line], event: str, **fields: Any) -> list[Line]:
    """The lines of one kind that have these values."""
    asked = {"event": event, **fields}
    return [line for line in lines if all(line.get(key) == value for key, value in asked.items())]


def main(parts: Mapping[str, Part]) -> None:
    """The command line of a module with parts: one of them, in this process."""
    parser = argparse.ArgumentParser(epilog=f"example: {next(iter(parts))} --quick")
    parser.add_argument("part", choices=tuple(parts))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    os.environ.setdefault("DETSHARE_EBPF", "libbpf")
    begun: Final = time.monotonic()
    try:
        parts[asked.part].run(asked.quick)
    except PartError as error:
        print(f"{asked.part}: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        say("part", name=asked.part, seconds=round(time.monotonic() - begun, 1))
