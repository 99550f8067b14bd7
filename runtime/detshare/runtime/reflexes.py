# SPDX-License-Identifier: Apache-2.0
"""What a class means in the spatial lane: the reflex that a program's runtime follows by itself on each launch.

While no higher class is active a program uses `idle`. While one is, it either goes to `busy`, or holds at its next
kernel boundary; so that tokens back to back do not starve it, a held program runs for `floor_permille` of each
`floor_period_us`. Where higher classes are active nearly all the time, class low does not hold but runs on a small set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.classes import setting
from detshare.runtime import board_layout as layout
from detshare.runtime.tiers import FULL, Gpu, Kind, Tier, of_percent, parse

RANKS: Final = {
    "idle": layout.CLASS_LOW - 1,
    "low": layout.CLASS_LOW,
    "normal": layout.CLASS_NORMAL,
    "high": layout.CLASS_HIGH,
}
"""the classes' order on a board; a higher number interrupts a lower one"""
DEFAULT_CLASS: Final = "normal"
HOLD: Final = "hold"
"""in place of a set of SMs: stop at the next kernel boundary"""

GATE_US: Final = 75
"""estimated work between two gates: what a higher class waits for beyond the kernel that runs. Beside a decode 50 costs
the lower class up to 2 % more and 100 the higher one some of its tail (docs/results/raw/probes: A-2, B-1)"""

AHEAD_US: Final = 1000
"""estimated work that a program may have queued where a higher class can change its SMs: queued work keeps its own"""


class Mode(IntEnum):
    """What a program does while a higher class is active."""

    TIER = layout.MODE_TIER
    HOLD = layout.MODE_HOLD


@dataclass(frozen=True, slots=True)
class Reflex:
    """One program's reflex. Times in microseconds."""

    klass: str
    idle: Tier = FULL
    busy: Tier = FULL
    mode: Mode = Mode.HOLD
    linger_us: int = 200
    """how long after its last work a program still counts as active"""
    depth: int = 64
    """launches queued while held, behind closed gates: enough that the GPU has work at once when they open"""
    floor_permille: int = 0
    floor_period_us: int = 20_000


CROWDED_STEPS: Final = {"low": 2}
"""classes that run on the first so many steps of SMs (16 on Hopper), rather than hold, where they are crowded out"""

_DEFAULTS: Final = {
    "high": Reflex("high", mode=Mode.TIER, linger_us=50),
    "normal": Reflex("normal", floor_permille=250),
    "low": Reflex("low", floor_permille=50),
    "idle": Reflex("idle", floor_permille=10),
}


@dataclass(frozen=True, slots=True)
class Desired:
    """What was asked for one program of the spatial lane."""

    klass: str = DEFAULT_CLASS
    percent: int | None = None
    """share of the SMs; None: all"""
    memory: int | None = None
    """bytes; None: no limit"""
    exclusive: str = ""
    """the pCtx that it has to itself, and"""
    exclusive_sms: int = 0
    """the first so many SMs, which that is"""
    busy: str = ""
    """a set of SMs while a higher class is active, or HOLD; empty: as its class has it"""
    park_after: float | None = None
    """seconds without work after which its memory leaves the GPU; None: only by hand"""


@dataclass(frozen=True, slots=True)
class Override:
    """What an operator set for a whole class; None: what it is by default."""

    idle: str | None = None
    """a set of SMs as tiers.parse() takes it"""
    busy: str | None = None
    """the same, or HOLD"""
    linger_us: int | None = None
    floor_permille: int | None = None

    def check(self, gpu: Gpu) -> None:
        """BadRequest where a set is none of this GPU, or a number is out of range."""
        for text in (self.idle, None if self.busy == HOLD else self.busy):
            if text is not None:
                parse(text, gpu)
        for name, value, most in (("linger", self.linger_us, 1_000_000), ("floor", self.floor_permille, 1000)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most):
                raise BadRequest(f"{name} {str(value)[:24]} is out of range: 0 to {most}")

    def apply(self, made: Reflex, gpu: Gpu) -> Reflex:
        """The reflex with this in it."""
        if self.idle is not None:
            made = replace(made, idle=parse(self.idle, gpu))
        if self.busy == HOLD:
            made = replace(made, mode=Mode.HOLD)
        elif self.busy is not None:
            made = replace(made, mode=Mode.TIER, busy=parse(self.busy, gpu))
        if self.linger_us is not None:
            made = replace(made, linger_us=self.linger_us)
        return made if self.floor_permille is None else replace(made, floor_permille=self.floor_permille)


def reflex(
    desired: Desired, gpu: Gpu, reserve: int | None, override: Override | None = None, crowded: bool = False
) -> Reflex:
    """The reflex that follows from what is desired, from the GPU's reserve, and from what was set for the class.

    A reserve of n SMs gives class high the first n and everybody else the rest, at all times: nobody is held. What
    was set for the class goes before the reserve, what is the program's own before both. `crowded`: higher classes
    leave it hardly any time; it only changes what nobody has set.
    """
    setting(desired.klass)
    made = _DEFAULTS[desired.klass]
    chosen = desired.percent is not None or desired.busy or (override is not None and override.busy is not None)
    if crowded and not chosen and desired.klass in CROWDED_STEPS:
        small = Tier(Kind.FIRST, min(CROWDED_STEPS[desired.klass] * gpu.step, gpu.largest))
        made = replace(made, mode=Mode.TIER, busy=small)
    if reserve is not None:
        tier = Tier(Kind.FIRST if desired.klass == "high" else Kind.REST, reserve)
        made = replace(made, idle=tier, busy=tier, mode=Mode.TIER)
    if override is not None:
        made = override.apply(made, gpu)
    if desired.percent is not None:
        tier = of_percent(desired.percent, gpu)
        made = replace(made, idle=tier, busy=tier)
    return Override(busy=desired.busy or None).apply(made, gpu)


def apart(made: Reflex, sms: int, owner: bool, contended: bool) -> Reflex:
    """The reflex where the first `sms` SMs belong to one program alone, which is the `owner`.

    The others keep off these SMs at all times. `contended`: somebody of a higher class is among the others too; if
    only the owner is, nobody has to hold for it.
    """
    if owner:
        mine = Tier(Kind.FIRST, sms)
        return replace(made, idle=mine, busy=mine, mode=Mode.TIER)

    def clear(tier: Tier) -> Tier:
        return tier if tier.kind is Kind.REST and tier.sms >= sms else Tier(Kind.REST, sms)

    made = replace(made, idle=clear(made.idle), busy=clear(made.busy))
    return made if contended else replace(made, busy=made.idle, mode=Mode.TIER)


def overlaps(desired: Desired, reserve: int | None) -> bool:
    """Whether a program's own share lies in SMs that are reserved for class high."""
    return reserve is not None and desired.percent is not None and desired.klass != "high"
