# SPDX-License-Identifier: Apache-2.0
"""One program of a high class beside one, two and three of a low one, by slices alone and by turns."""

from __future__ import annotations

import time
from typing import Final

from detshare.ctl.netlink import genl
from detshare.tools.bench.vm.inside import guest
from detshare.tools.bench.vm.inside.workers import Spell, Worker, family, held, workers

__all__ = ["measure"]

BURSTS: Final = ("nvlatency", "--us", 1000, "--period-ms", 20, "--quiet", "--each")
SATURATED: Final = ("nvbackground", "--us", 2000, "--depth", 16, "--quiet")
BACKGROUND: Final = ("nvbackground", "--us", 5000, "--depth", 64, "--quiet")
SCHEMES: Final = ("slices", "turns")
SLICE_LOW, SLICE_HIGH = 50, 20_000
FLOOR = 20
SETTLE = 1.0


def _steer(link: genl.DetShare, scheme: str) -> None:
    high, low = genl.DETSHARE_LEVEL_HIGH, genl.DETSHARE_LEVEL_LOW
    more = {"turn_us": 100_000, "floor_permille": FLOOR} if scheme == "turns" else {}
    link.class_set("high", slice_us=SLICE_HIGH, level=high)
    link.class_set("low", slice_us=SLICE_LOW, level=low, **more)


def measure(seconds: float) -> None:
    """A line `mix` for each: GPU time of the high one and of each low one, and of each launch in bursts."""
    guest.load()
    for what, command in (("bursts", BURSTS), ("saturated", SATURATED)):
        for count in (1, 2, 3):
            for scheme in SCHEMES:
                with workers(command, *[BACKGROUND] * count) as members, family() as link:
                    _steer(link, scheme)
                    for member, name in zip(members, ("high", *["low"] * count), strict=True):
                        link.sched_set(member.pid, name)
                    time.sleep(SETTLE)
                    spell = held(seconds, *members)
                    each = _launches(members[0], spell) if what == "bursts" else []
                    guest.say(
                        event="mix",
                        what=what,
                        count=count,
                        scheme=scheme,
                        span=round(spell.span, 6),
                        used_us=spell.used_us,
                        gpu_us=each,
                        floor=FLOOR,
                    )


def _launches(high: Worker, spell: Spell) -> list[int]:
    """GPU time from launch to end, microseconds, of those in that time."""
    high.summary()
    (each,) = (line["each"] for line in high.lines if line["event"] == "each")
    return sorted(round(gpu) for at, _, gpu in each if spell.begin <= at < spell.end)
