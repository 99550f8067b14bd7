# SPDX-License-Identifier: Apache-2.0
"""Tiers: the sets of SMs that a program's kernels may be sent to, and how shares in percent become tiers.

A GPU cuts its SMs into multiples of `step` (8 on Hopper). FIRST n is the first n of them, REST n all after the first
n, FULL every one. FIRST n and REST n of one GPU never overlap, whichever processes use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from detshare.ctl.core.backend import BadRequest
from detshare.runtime import board_layout as layout

PERCENT: Final = range(1, 101)


class Kind(IntEnum):
    """Which SMs a tier has."""

    FULL = layout.TIER_FULL
    FIRST = layout.TIER_FIRST
    REST = layout.TIER_REST


@dataclass(frozen=True, slots=True)
class Tier:
    """`sms` is n of FIRST n and of REST n, and 0 of FULL."""

    kind: Kind
    sms: int = 0

    def size(self, total: int) -> int:
        """How many SMs it has on a GPU of `total`."""
        return {Kind.FULL: total, Kind.FIRST: self.sms, Kind.REST: total - self.sms}[self.kind]

    def text(self, total: int) -> str:
        """In words: "all 132 SMs", "the first 32 SMs", "the 100 SMs after the first 32"."""
        if self.kind is Kind.FULL:
            return f"all {total} SMs"
        if self.kind is Kind.FIRST:
            return f"the first {self.sms} SMs"
        return f"the {total - self.sms} SMs after the first {self.sms}"


FULL: Final = Tier(Kind.FULL)


@dataclass(frozen=True, slots=True)
class Gpu:
    """What is to be known of a GPU to cut it: its SMs, and the number they are cut by."""

    uuid: str
    sms: int
    step: int

    @property
    def largest(self) -> int:
        """SMs of the largest tier that is not the whole GPU and leaves a rest of a step or more."""
        return max(self.step, (self.sms - self.step) // self.step * self.step)


def check_percent(percent: object) -> int:
    """A share of the SMs. BadRequest where it is none."""
    if isinstance(percent, bool) or not isinstance(percent, int) or percent not in PERCENT:
        raise BadRequest(f"a share of {str(percent)[:24]} % of the SMs is out of range: 1 to 100")
    return percent


def of_percent(percent: int, gpu: Gpu) -> Tier:
    """The largest tier of at most `percent` of the SMs; the smallest that the GPU has where that is none."""
    check_percent(percent)
    if percent == 100:
        return FULL
    return Tier(Kind.FIRST, min(gpu.largest, max(gpu.step, gpu.sms * percent // 100 // gpu.step * gpu.step)))


def check_reserve(sms: object, gpu: Gpu, what: str = "reserve") -> int:
    """A number of SMs that both FIRST and REST can be made of. BadRequest otherwise."""
    if isinstance(sms, bool) or not isinstance(sms, int) or not gpu.step <= sms <= gpu.largest:
        raise BadRequest(f"a {what} of {str(sms)[:24]} SMs is out of range: {gpu.step} to {gpu.largest}")
    if sms % gpu.step:
        below = sms // gpu.step * gpu.step
        raise BadRequest(
            f"{sms} SMs is no tier of this GPU: it cuts its SMs by {gpu.step}; take {below} or {below + gpu.step}"
        )
    return sms


def parse(text: object, gpu: Gpu) -> Tier:
    """The tier that "full", "first:32" or "rest:32" names. BadRequest where it is none of this GPU."""
    kinds = {"first": Kind.FIRST, "rest": Kind.REST}
    name, colon, number = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name == "full" and not colon:
        return FULL
    if name not in kinds or not (number.isdecimal() and number.isascii() and len(number) < 6):
        raise BadRequest(f"{str(text)[:24]!r} is no set of SMs: write full, first:32 or rest:32")
    return Tier(kinds[name], check_reserve(int(number), gpu, "set"))


class Table:
    """The tiers of one policy page. Entries are only ever added: the program may have built any that it saw."""

    def __init__(self, gpu: Gpu, tiers: tuple[Tier, ...] = ()) -> None:
        """`tiers`: what the page holds already, entry 0 first."""
        self._gpu = gpu
        self._tiers = list(tiers) or [FULL]
        self._least = Tier(Kind.FIRST, gpu.step)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        return tuple(self._tiers)

    def index(self, tier: Tier) -> int:
        """The entry of a tier, added where there is room, else that of the largest one within it.

        A full table without one within it gives FIRST `step`, for which the last room is kept.
        """
        if tier in self._tiers:
            return self._tiers.index(tier)
        kept = layout.TIERS - (self._least not in self._tiers and tier != self._least)
        if len(self._tiers) < kept:
            self._tiers.append(tier)
            return len(self._tiers) - 1
        within = [t for t in self._tiers if t.kind is tier.kind and self._inside(t, tier)]
        best = max(within, key=lambda t: t.size(self._gpu.sms), default=None)
        return self.index(self._least) if best is None else self._tiers.index(best)

    @staticmethod
    def _inside(inner: Tier, outer: Tier) -> bool:
        return inner.sms <= outer.sms if outer.kind is Kind.FIRST else inner.sms >= outer.sms
