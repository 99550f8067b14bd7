# SPDX-License-Identifier: Apache-2.0
"""Which cells a suite has: a server and its backgrounds under one way to share the GPU; and how long they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from detshare.tools.bench.field.suites import Suite
from detshare.tools.bench.field.systems import ALONE, System
from detshare.tools.bench.mix.figures import Measured

__all__ = ["PERIOD_MS", "REQUESTS", "Cell", "Pace", "failed", "plan"]

REQUESTS = 1000
PERIOD_MS = 8.0
"""of a server that was not measured alone yet: for the plan only"""


@dataclass(frozen=True)
class Pace:
    """How long things take, in seconds."""

    requests: int = REQUESTS
    least: float = 2.5
    most: float = 12.0
    alone: float = 2.5
    """of a background alone, and of the requests back to back that say how long one takes"""
    warm: float = 30.0
    """of its trace that a serving engine has before an interval, whatever the way: all see the same part of it, with as
    many requests in the engine as there are later. A window of the policy slo-aware, 100 requests, takes 25 s"""
    overhead: float = 2.2
    """of a cell besides its interval"""
    start: float = 60.0
    """of all programs of a group: imports, models, warming up"""
    end: float = 15.0

    def seconds(self, period_ms: float) -> float:
        """Of an interval with so many requests."""
        return min(self.most, max(self.least, self.requests * period_ms / 1e3))


@dataclass(frozen=True)
class Cell:
    """`server` "": backgrounds only; no backgrounds: the server alone; neither: a probe."""

    suite: str
    server: str
    backgrounds: tuple[str, ...]
    system: str
    mix: str
    """who runs, or the probe, by its name"""

    @property
    def programs(self) -> tuple[str, ...]:
        """All that take part."""
        return tuple(each for each in (self.server, *self.backgrounds) if each)

    @property
    def name(self) -> str:
        """What results, --cells and --resume call it."""
        return f"{self.mix}: {self.system}"


def failed(cell: Measured) -> str:
    """Why nothing could be measured; empty where it was."""
    return (
        "" if cell.server is not None or cell.back or cell.figures else "; ".join(cell.notes) or "nothing was measured"
    )


def plan(suite: Suite, systems: Sequence[System], patterns: Sequence[str] = (), done: Iterable[str] = ()) -> list[Cell]:
    """What is to be measured, way by way: those that share programs one after the other, and first who is alone."""
    measured = set(done)
    cells = [
        Cell(suite.name, mix.server, mix.backgrounds, system.name, mix.name)
        for system in systems
        for mix in suite.mixes
    ]
    cells += [Cell(suite.name, "", (), system.name, probe.name) for system in systems for probe in suite.probes]
    wanted = [cell for cell in cells if cell.name not in measured and _named(cell, patterns)]
    needed = {name for cell in wanted for name in cell.programs}
    servers = dict.fromkeys(mix.server for mix in suite.mixes if mix.server in needed)
    backs = dict.fromkeys(name for mix in suite.mixes for name in mix.backgrounds if name in needed)
    alone = [Cell(suite.name, name, (), ALONE, name) for name in servers]
    alone += [Cell(suite.name, "", (name,), ALONE, name) for name in backs]
    alone += [
        Cell(suite.name, "", (), ALONE, probe.name)
        for probe in suite.probes
        if any(cell.mix == probe.name for cell in wanted)
    ]
    return [cell for cell in alone if cell.name not in measured] + wanted


def _named(cell: Cell, patterns: Sequence[str]) -> bool:
    return not patterns or any(each in cell.name or fnmatchcase(cell.name, f"*{each}*") for each in patterns)
