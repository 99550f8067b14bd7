# SPDX-License-Identifier: Apache-2.0
"""The driver's ABI by version: numbers, sizes and offsets from the generated tables, never typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from detshare.ctl.abi import tables
from detshare.ctl.abi.layout import Field, Layout

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Control:
    """An RM control: command number, exact parameter size in bytes, name of its parameter structure."""

    number: int
    size: int
    params: str


class UnknownBranch(LookupError):
    """The driver's branch is not in the tables: look, but never change anything."""


class Missing(LookupError):
    """This version of the driver has no such control, structure, class or constant."""


@dataclass(frozen=True, slots=True)
class Abi:
    """What one driver version understands. Lookups raise Missing."""

    version: str
    table: str
    """the version whose headers the table was read from; one of the same branch"""
    controls: Mapping[str, Control]
    layouts: Mapping[str, Layout]
    classes: Mapping[str, int]
    constants: Mapping[str, int]
    statuses: Mapping[str, int]

    def control(self, name: str) -> Control:
        return self._get(self.controls, name, "control")

    def layout(self, name: str) -> Layout:
        return self._get(self.layouts, name, "structure")

    def klass(self, name: str) -> int:
        return self._get(self.classes, name, "class")

    def constant(self, name: str) -> int:
        return self._get(self.constants, name, "constant")

    def status(self, name: str) -> int:
        return self._get(self.statuses, name, "status")

    def status_name(self, number: int) -> str:
        """NV_ERR_... of a status, or its hexadecimal number where the driver has no name for it."""
        for name, value in self.statuses.items():
            if value == number:
                return name
        return f"status {number:#x}"

    def params(self, control: str) -> Layout:
        """The parameter structure of a control; an empty one where it takes none."""
        name = self.control(control).params
        return self.layout(name) if name else Layout("", 0, {})

    def engine_name(self, engine: int) -> str:
        """"GR0", "COPY2" ... of an NV2080_ENGINE_TYPE; shortest of its aliases."""
        prefix = "NV2080_ENGINE_TYPE_"
        names = [
            name.removeprefix(prefix)
            for name, value in self.constants.items()
            if value == engine and name.startswith(prefix) and not name.endswith(("_SIZE", "_LAST"))
        ]
        return min(names, key=lambda n: (not n[-1:].isdigit(), len(n), n), default=f"engine {engine:#x}")

    def _get(self, table: Mapping[str, _T], name: str, what: str) -> _T:
        try:
            return table[name]
        except KeyError:
            raise Missing(f"driver {self.version} (table {self.table}) has no {what} {name}") from None


def branches() -> list[str]:
    """The branches that the tables cover, such as "580"."""
    return sorted({version.split(".")[0] for version in tables.VERSIONS})


def _closest(version: str) -> str:
    """The table of `version`'s branch that is newest without being newer than it, else the branch's oldest."""

    def key(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(".") if part.isdigit())

    branch = [v for v in tables.VERSIONS if v.split(".")[0] == version.split(".")[0]]
    if not branch:
        raise UnknownBranch(
            f"driver {version} is of branch {version.split('.')[0]}; the tables cover {', '.join(branches())}"
        )
    older = [v for v in branch if key(v) <= key(version)]
    return max(older, key=key) if older else min(branch, key=key)


@lru_cache(maxsize=8)
def for_version(version: str) -> Abi:
    """The ABI of a driver version string such as 580.159.04. Raises UnknownBranch."""
    name = _closest(version)
    table = tables.VERSIONS[name]
    return Abi(
        version=version,
        table=name,
        controls={n: Control(*tables.CONTROLS[i]) for n, i in table.controls.items()},
        layouts={
            n: Layout(n, size, {f: Field(*spec) for f, spec in fields.items()})
            for n, (size, fields) in ((n, tables.LAYOUTS[i]) for n, i in table.layouts.items())
        },
        classes=tables.NUMBERS[table.classes],
        constants=tables.NUMBERS[table.constants],
        statuses=tables.NUMBERS[table.statuses],
    )
