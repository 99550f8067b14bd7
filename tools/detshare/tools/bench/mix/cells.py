# SPDX-License-Identifier: Apache-2.0
"""Which mixes are measured: each cell is one server, some backgrounds, and who divides the GPU among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from detshare.tools.bench.mix.worker import BACKGROUNDS, SERVERS

__all__ = ["ALONE", "DEFAULT", "MPS_PRIORITY", "MPS_SHARES", "OURS", "Cell", "chosen", "mixes", "plan", "weightings"]

ALONE, DEFAULT, OURS = "alone", "default slicing", "DetShare"
MPS_PRIORITY, MPS_SHARES = "MPS with client priority", "MPS with shares"


@dataclass(frozen=True)
class Cell:
    """``server`` "": the background runs alone."""

    server: str
    backgrounds: tuple[str, ...]
    scheme: str
    weights: tuple[int, ...] = ()
    """OURS: of each background"""

    @property
    def mix(self) -> str:
        """Who runs."""
        return " + ".join(each for each in (self.server, *self.backgrounds) if each)

    @property
    def name(self) -> str:
        """What results, --cells and --resume call it."""
        weights = f" {':'.join(map(str, self.weights))}" if self.weights else ""
        return f"{self.mix}: {self.scheme}{weights}"

    @property
    def programs(self) -> tuple[str, ...]:
        """All that take part."""
        return tuple(each for each in (self.server, *self.backgrounds) if each)


def mixes(available: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Backgrounds by their number: the first ones; of four the last ones, so that each takes part somewhere."""
    ordered = [name for name in BACKGROUNDS if name in available]
    return {
        count: tuple(ordered[-4:] if count == 4 else ordered[:count]) for count in range(1, min(4, len(ordered)) + 1)
    }


def weightings(count: int) -> list[tuple[int, ...]]:
    """Equal, rising, and one that weighs most; for a single background there is nothing to weigh."""
    if count == 1:
        return [(1,)]
    return [(1,) * count, tuple(range(1, count + 1)), (4,) + (1,) * (count - 1)]


def plan(available: Sequence[str], quick: bool = False) -> list[Cell]:
    """All cells in the order of their worth, those without a baseline first: alone, then DetShare beside the default.

    `available`: servers and backgrounds that can run here. `quick`: the cells that tell most, without MPS.
    """
    servers = [name for name in SERVERS if name in available]
    sets = mixes(available)
    used = sorted({name for some in sets.values() for name in some}, key=BACKGROUNDS.index)
    found = [Cell(name, (), ALONE) for name in servers] + [Cell("", (name,), ALONE) for name in used]
    if quick:
        for server, counts in (("graph", (1, 2, 3)), ("eager", (3,))):
            for count in counts:
                if server in servers and count in sets:
                    found += [Cell(server, sets[count], DEFAULT), Cell(server, sets[count], OURS, (1,) * count)]
        if "graph" in servers and 3 in sets:
            found.append(Cell("graph", sets[3], OURS, (1, 2, 3)))
        return found
    beside = [(server, sets[count]) for server in servers for count in sets]
    for server, some in beside:
        found.append(Cell(server, some, DEFAULT))
        found += [Cell(server, some, OURS, weights) for weights in weightings(len(some))]
    for scheme in (MPS_PRIORITY, MPS_SHARES):
        found += [Cell(server, some, scheme) for server, some in beside]
    return found


def _matches(cell: Cell, patterns: Iterable[str]) -> bool:
    return any(pattern in cell.name or fnmatchcase(cell.name, f"*{pattern}*") for pattern in patterns)


def chosen(cells: Sequence[Cell], patterns: Sequence[str], done: Iterable[str] = ()) -> list[Cell]:
    """Those that a pattern names (all without patterns) and that are not done, and what they are compared with.

    Whoever takes part in one of them is measured alone in the same run.
    """
    measured = set(done)
    wanted = [
        cell
        for cell in cells
        if cell.scheme != ALONE and cell.name not in measured and (not patterns or _matches(cell, patterns))
    ]
    needed = {name for cell in wanted for name in cell.programs}
    alone = [
        cell
        for cell in cells
        if cell.scheme == ALONE and (cell.programs[0] in needed or (bool(patterns) and _matches(cell, patterns)))
    ]
    return alone + wanted
