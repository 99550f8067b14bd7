# SPDX-License-Identifier: Apache-2.0
"""The rule that turns classes and weights into time slices and runlist levels.

A TSG keeps its engine until its slice ends or it runs out of work; then the next one of the runlist has its turn.
Slices therefore bound both what a program may hold and what the others wait. The figures come from the sweep in
docs/results/sweep.json; docs/how/class-numbers.md derives them and gives the bound on waiting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.snapshot import Level

WEIGHTS = range(1, 1001)
WEIGHT_UNIT_US = 2000
"""slice of weight 1 of a tenant with one TSG"""
SLICES_US = range(1, 100_000_001)
"""what set-slice accepts; the driver takes any number, and a slice of 0 would be no promise at all"""
SHORTEST_US = 500
"""a weighted slice is not made shorter: a switch and the restore of a context would take most of it"""
BURST_US, STREAM_US, WINDOW_US = 50, 2000, 20_000
"""slices of a holder: beside a foreground of bursts, beside a stream of small kernels, and in a window, which ends
earlier by being switched off (docs/use/scheduling.md)"""
RIVAL_US = 1000
"""shortest slice of a TSG that has a rival at its level, where nobody gives them turns: two at 50 us only switch"""


@dataclass(frozen=True, slots=True)
class Setting:
    """Slice in microseconds, None for what the program had before DetShare; level.

    The rest is what the kernel module does with it, and counts with backend kmod only.
    """

    slice_us: int | None
    level: Level
    floor_permille: int = 0
    """share of the time that it has while others have all turns, or a foreground without gaps the GPU"""
    turn_us: int = 0
    """one tenant of such classes at a time is on a GPU's run list, for so long at weight 1; 0: all are"""
    turn_rank: int = 0
    """of those that want the GPU the highest have turns, the others their floors"""


TURN_US = 100_000
"""a turn costs two calls of the driver, 1.2 ms on an H200"""

CLASSES: dict[str, Setting] = {
    "high": Setting(20_000, Level.HIGH, turn_rank=4),
    "normal": Setting(None, Level.MEDIUM, turn_rank=3),
    "low": Setting(50, Level.LOW, floor_permille=20, turn_us=TURN_US, turn_rank=2),
    "idle": Setting(20, Level.LOW, floor_permille=10, turn_us=TURN_US, turn_rank=1),
}
OTHER_TURN_RANK = CLASSES["low"].turn_rank
"""of classes that somebody makes: where they have turns, those are among the turns of low"""


_TENANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,62}")


def check_tenant(name: str) -> str:
    """`name` if programs that have their turns together may be called so; empty: nobody named one. BadRequest."""
    if name and not _TENANT.fullmatch(name):
        raise BadRequest(f"{ascii(name)[:60]} cannot be a tenant's name: letters, digits, _ . : @ / -, 63 at most")
    return name


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")


def check_name(klass: object) -> str:
    """`klass` if a class may be called so. BadRequest otherwise."""
    if not isinstance(klass, str) or not _NAME.fullmatch(klass):
        shown = ascii(klass)[:60]
        raise BadRequest(f"{shown} cannot be a class's name: a letter or _, then letters, digits, _ . -, 63 at most")
    return klass


def setting(klass: str) -> Setting:
    """The Setting of a class. BadRequest for a name that is none."""
    try:
        return CLASSES[klass]
    except KeyError:
        raise BadRequest(f"{klass!r} is no class: use one of {', '.join(CLASSES)}") from None


def weight_slice(weight: int, tsgs: int) -> int:
    """Slice of each of a tenant's `tsgs` compute TSGs, so that together they get `weight` shares."""
    return max(SHORTEST_US, WEIGHT_UNIT_US * weight // max(tsgs, 1))


MOST_FLOOR = 0.5
"""more than half of the time is no floor: then the other program is not the important one"""


def check_floor(floor: object) -> float:
    """`floor`, a share of time, if it can be one. BadRequest otherwise."""
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor <= MOST_FLOOR:
        shown = f"{100 * floor:g} %" if isinstance(floor, int | float) else ascii(floor)[:40]
        raise BadRequest(f"floor {shown} is out of range: 0 to {100 * MOST_FLOOR:g} %")
    return float(floor)


def check_range(name: str, value: object, allowed: range) -> int:
    """`value` if it is a whole number in `allowed`. BadRequest otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise BadRequest(f"{name} {str(value)[:40]} is out of range: {allowed[0]} to {allowed[-1]}")
    return value


TURNS_US = range(5000, 1_000_001)
PERMILLES = range(1001)
PERCENTS = range(1, 101)
RATES_US = range(1, 1_000_001)
BURSTS_US = range(1, 3_600_000_001)
LEASES_S = range(1, 3601)
