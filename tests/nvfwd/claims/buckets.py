# SPDX-License-Identifier: Apache-2.0
"""A program with a bucket beside one that has none."""

from __future__ import annotations

import time
from typing import Any

from claims.box import PID, Box, rows, tell

KERNEL_US = 2000
RATE_US, BURST_US = 250_000, 75_000
SECONDS, SETTLE_S = 8.0, 2.0


def buckets(box: Box) -> None:
    box.load()
    one, other = box.start("spin", 2)
    rate = one.ask("rate", "rate")["per_us"]
    other.ask(f"rate {rate}", "rate")
    for each in (one, other):
        each.say(f"run {KERNEL_US} 0")

    def bucket() -> dict[str, Any]:
        found = rows(box.link.bucket_get(kind=PID, pid=one.pid))
        return found[0] if found else {}

    def phase(what: str, seconds: float) -> None:
        time.sleep(SETTLE_S)
        begin, told, before = time.monotonic(), bucket(), [each.kernels() for each in (one, other)]
        time.sleep(seconds)
        end, tells, after = time.monotonic(), bucket(), [each.kernels() for each in (one, other)]
        tell("buckets", what=what, seconds=end - begin, before=told, after=tells, kernel_us=KERNEL_US,
             kernels=[b - a for a, b in zip(before, after, strict=True)])  # fmt: skip

    phase("none", SECONDS / 2)
    box.link.bucket_set(RATE_US, BURST_US, kind=PID, pid=one.pid)
    phase("one has a bucket", SECONDS)
    box.link.bucket_del(kind=PID, pid=one.pid)
    for each in (one, other):
        tell("buckets", rest=each.ask("rest", "rest"))
