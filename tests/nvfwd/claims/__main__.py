# SPDX-License-Identifier: Apache-2.0
"""What detshare.ko says that it does, tried by CUDA programs in a forwarding guest.

A JSON line for each thing that was seen; a step that fails is told and ends none of the others. `detshare bench
forwarded` judges the lines.
Times are CLOCK_MONOTONIC seconds of the guest, in whose emulated processor a launch takes some 0.1 ms.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from claims import buckets, ends, hold, hostile, kinds, limits, mix, programs
from claims.box import HELPER, Box, Program, tell

STEPS: dict[str, Callable[[Box], None]] = {
    "mix": mix.mix,
    "limit": limits.limit,
    "gate": lambda box: hold.hold(box, gate=True),
    "pause": lambda box: hold.hold(box, gate=False),
    "steer": hold.steer,
    "buckets": buckets.buckets,
    "storm": ends.storm,
    "unload": ends.unload,
    "programs-alone": lambda box: programs.programs(box, module=False),
    "programs": lambda box: programs.programs(box, module=True),
    "kinds": kinds.kinds,
    "hostile": lambda box: hostile.hostile(box, filtered=True),
    "hostile-unfiltered": lambda box: hostile.hostile(box, filtered=False),
}


def step(name: str, do: Callable[[Box], None], box: Box) -> None:
    begun = time.monotonic()
    tell(name, begins=True)
    try:
        do(box)
    except Exception as error:  # noqa: BLE001  the next step is about something else
        tell(name, failed=f"{type(error).__name__}: {error}")
    Program.end_all()
    tell(name, took=round(time.monotonic() - begun, 3))


def main() -> None:
    words = argparse.ArgumentParser(prog="claims", description=__doc__)
    words.add_argument("--programs", type=Path, required=True, help="folder of the CUDA programs")
    words.add_argument("--module", type=Path, required=True, help="detshare.ko")
    words.add_argument("--steps", default=",".join(STEPS), help="which, in this order (all: %(default)s)")
    words.add_argument("--seconds", type=float, default=20.0, help="of each phase of a mix (%(default)s)")
    words.add_argument("--budget", type=float, default=600.0, help="seconds after which no step begins (%(default)s)")
    given = words.parse_args()
    wanted = given.steps.split(",")
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        words.error(f"no step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    box = Box(given.programs, given.module, given.seconds)
    begun = time.monotonic()
    tell("begin", kernel=Path("/proc/version").read_text().strip(), steps=wanted, helper=HELPER.exists())
    for name in wanted:
        if time.monotonic() - begun > given.budget:
            tell(name, failed=f"{given.budget:g} s were over")
            continue
        step(name, STEPS[name], box)
    tell("end")


if __name__ == "__main__":
    main()
