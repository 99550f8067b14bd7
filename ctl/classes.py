# SPDX-License-Identifier: Apache-2.0
"""The rule that turns classes and weights into time slices and runlist levels.

A TSG keeps its engine until its slice ends or it runs out of work; then the next one of the runlist has its turn.
Slices therefore bound both what a program may hold and what the others wait. The figures come from the sweep in
docs/results/sweep.json; docs/classes.md derives them and gives the bound on waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

from detshare.ctl.backends.base import BadRequest
from detshare.ctl.snapshot import Level

WEIGHTS = range(1, 1001)
WEIGHT_UNIT_US = 2000
"""slice of weight 1 of a tenant with one TSG"""
SLICES_US = range(1, 100_000_001)
"""what set-slice accepts; the driver takes any number, and a slice of 0 would be no promise at all"""
SHORTEST_US = 200
"""a weighted slice is not made shorter: below this a context switch costs more than the slice"""


@dataclass(frozen=True, slots=True)
class Setting:
    """Slice in microseconds, None for what the program had before DetShare; level."""

    slice_us: int | None
    level: Level


CLASSES: dict[str, Setting] = {
    "high": Setting(20_000, Level.HIGH),
    "normal": Setting(None, Level.MEDIUM),
    "low": Setting(50, Level.LOW),
    "idle": Setting(20, Level.LOW),
}


def setting(klass: str) -> Setting:
    """The Setting of a class. BadRequest for a name that is none."""
    try:
        return CLASSES[klass]
    except KeyError:
        raise BadRequest(f"{klass!r} is no class: use one of {', '.join(CLASSES)}") from None


def weight_slice(weight: int, tsgs: int) -> int:
    """Slice of each of a tenant's `tsgs` compute TSGs, so that together they get `weight` shares."""
    return max(SHORTEST_US, WEIGHT_UNIT_US * weight // max(tsgs, 1))


def check_weight(weight: int) -> int:
    """`weight` if it is one. BadRequest otherwise."""
    if isinstance(weight, bool) or not isinstance(weight, int) or weight not in WEIGHTS:
        raise BadRequest(f"weight {weight!r} is out of range: {WEIGHTS[0]} to {WEIGHTS[-1]}")
    return weight


def check_slice(slice_us: int) -> int:
    """`slice_us` if it can be set. BadRequest otherwise."""
    if isinstance(slice_us, bool) or not isinstance(slice_us, int) or slice_us not in SLICES_US:
        raise BadRequest(f"slice {slice_us!r} us is out of range: {SLICES_US[0]} to {SLICES_US[-1]}")
    return slice_us
