# SPDX-License-Identifier: Apache-2.0
"""Cells beside what their programs did alone: overheads, progress, system throughput, fairness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from detshare.tools.bench.field.serving import GOODPUT
from detshare.tools.bench.field.suites import taking_part
from detshare.tools.bench.field.systems import ALONE, AUTO, ours
from detshare.tools.bench.mix.figures import Measured, Server
from detshare.tools.bench.stats import jain

__all__ = ["Shown", "Together", "best", "shown", "together"]


@dataclass(frozen=True)
class Shown:
    """A cell beside what its programs did alone."""

    mix: str
    system: str
    server: Server
    alone: Server
    progress: dict[str, float]
    """each program's work over that alone; the server's: requests that it finished over those that were due"""
    late: dict[str, tuple[float, float]] = field(default_factory=dict)
    """p99 of each other program that answers requests, and that alone, us"""
    figures: dict[str, float] = field(default_factory=dict)
    """what else was measured of the server, by name"""

    @property
    def goodput(self) -> float | None:
        """Of a serving engine, requests/s that kept both objectives."""
        return next((value for what, value in self.figures.items() if what.startswith(GOODPUT)), None)

    @property
    def changed(self) -> int | None:
        """Answers that differ from those alone; None where the server does not tell its answers."""
        if not self.server.answers or not self.alone.answers:
            return None
        return sum(count for digest, count in self.server.answers.items() if digest not in self.alone.answers)

    @property
    def overhead(self) -> float:
        """Percent of p99 over alone."""
        return 100.0 * (self.server.p99 / self.alone.p99 - 1.0)

    @property
    def stp(self) -> float:
        """System throughput: the sum of all progress (Eyerman and Eeckhout, 2008)."""
        return sum(self.progress.values())

    @property
    def fairness(self) -> float:
        """Jain's index of the progress, 1/n to 1."""
        return jain(list(self.progress.values()))


def shown(cells: Sequence[Measured]) -> list[Shown]:
    """All that were measured beside a server that was measured alone, and backgrounds too."""
    alone = {each.mix: each for each in cells if each.scheme == ALONE}
    found = []
    for cell in cells:
        server = taking_part(cell.mix)[0]
        known = alone.get(server)
        if cell.scheme == ALONE or cell.server is None or known is None or known.server is None:
            continue
        if not all(name in alone and alone[name].back[name].rate for name in cell.back):
            continue
        progress = {server: cell.server.rate / known.server.rate}
        progress |= {name: one.rate / alone[name].back[name].rate for name, one in cell.back.items()}
        late = {
            name: (one.p99, alone[name].back[name].p99 or 0.0) for name, one in cell.back.items() if one.p99 is not None
        }
        figures = {each.what: each.value for each in cell.figures}
        found.append(Shown(cell.mix, cell.scheme, cell.server, known.server, progress, late, figures))
    return found


@dataclass(frozen=True)
class Together:
    """Programs without a server, side by side: what each did of its work alone."""

    mix: str
    system: str
    progress: dict[str, float]

    @property
    def stp(self) -> float:
        """System throughput."""
        return sum(self.progress.values())


def together(cells: Sequence[Measured]) -> list[Together]:
    """All cells of several backgrounds and no server, each of which was measured alone."""
    alone = {each.mix: each.back[each.mix].rate for each in cells if each.scheme == ALONE and each.mix in each.back}
    return [
        Together(cell.mix, cell.scheme, {name: one.rate / alone[name] for name, one in cell.back.items()})
        for cell in cells
        if cell.server is None and len(cell.back) > 1 and all(alone.get(name) for name in cell.back)
    ]


def best(some: Sequence[Shown]) -> dict[str, Shown]:
    """By mix, the better of our lanes by its p99."""
    found: dict[str, Shown] = {}
    for each in some:
        lane = ours(each.system) and each.system != AUTO
        if lane and (each.mix not in found or each.server.p99 < found[each.mix].server.p99):
            found[each.mix] = each
    return found
