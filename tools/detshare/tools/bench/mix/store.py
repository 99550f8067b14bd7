# SPDX-License-Identifier: Apache-2.0
"""A file of cells: a line for each as soon as it is measured, so that a run that is cut off loses at most one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from detshare.tools.bench.mix.figures import Measured

__all__ = ["CellsError", "Store", "load"]


class CellsError(ValueError):
    """A file that is no file of cells; the text says which line and why."""


def load(path: Path) -> list[Measured]:
    """The cells of a file; a last line that was cut off is passed over. CellsError, OSError."""
    found = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, 1):
        try:
            found.append(Measured.of(json.loads(text)))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise CellsError(f"{path}, line {number} is no cell of a mix: {error!r}") from error
    return found


class Store:
    """The cells of this run, and those that were resumed."""

    def __init__(self, path: Path, resumed: Iterable[Measured] = ()) -> None:
        """A new file, beginning with what was resumed."""
        self.path = path
        self.cells: list[Measured] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
        for each in resumed:
            self.add(each)

    def add(self, measured: Measured) -> None:
        """Keep a cell; it is on the disk when this returns."""
        self.cells.append(measured)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(measured.to_json(), separators=(",", ":")) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def alone(self, name: str, run: str) -> Measured | None:
        """What a program did alone in that run."""
        return next((each for each in self.cells if each.run == run and each.cell == f"{name}: alone"), None)

    def other(self, mix: str, scheme: str, run: str) -> Measured | None:
        """The same mix under another scheme: of that run, else of another one."""
        found = [each for each in self.cells if each.mix == mix and each.scheme == scheme]
        return next((each for each in found if each.run == run), found[-1] if found else None)
