# SPDX-License-Identifier: Apache-2.0
"""A server of requests beside programs that never rest: alone, by the GPU's own slices, by turns of the module."""

from __future__ import annotations

import time
from pathlib import Path

from claims.box import Box, Program, plain, rows, tell

BACKGROUNDS, KERNEL_US = 3, 2000
REQUEST_US, PERIOD_MS = 1500, 30
CLASSES = {
    "high": {"slice_us": 20_000, "level": 2, "turn_rank": 4},
    "low": {"slice_us": 50, "level": 0, "floor_permille": 20, "turn_us": 100_000, "turn_rank": 2},
}
"""as a daemon writes them"""
SETTLE_S = 1.5
TURNS = Path("/sys/kernel/debug/detshare/turns")
LOOK_S = 0.02


class Mix:
    """A server and its backgrounds, all with the same idea of how long a round takes."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.server, *self.backs = box.start("spin", 1 + BACKGROUNDS)
        rate = self.server.ask("rate", "rate")["per_us"]
        for each in self.backs:
            each.ask(f"rate {rate}", "rate")
        self.server.say(f"run {REQUEST_US} {PERIOD_MS}")

    @property
    def all(self) -> list[Program]:
        return [self.server, *self.backs]

    def work(self) -> None:
        for each in self.backs:
            each.say(f"run {KERNEL_US} 0")

    def phase(self, scheme: str, seconds: float, *, module: bool) -> None:
        time.sleep(SETTLE_S)
        begin, before = time.monotonic(), [each.kernels() for each in self.all]
        turns = self.turns(begin + seconds) if module and TURNS.exists() else time.sleep(seconds)
        end, after = time.monotonic(), [each.kernels() for each in self.all]
        some = sorted(self.server.requests(begin, end))
        served, *done = [b - a for a, b in zip(before, after, strict=True)]
        tell("mix", scheme=scheme, seconds=end - begin, latencies=some, served=served, kernels=done,
             kernel_us=KERNEL_US, request_us=REQUEST_US, turns=turns or [],
             steps=[each.steps(begin, end) for each in self.all],
             runs=rows(self.box.link.entity_get()) if module else [])  # fmt: skip

    @staticmethod
    def turns(until: float) -> list[tuple[float, str]]:
        """Who had turns and windows: a line for each change."""
        seen: list[tuple[float, str]] = []
        while (now := time.monotonic()) < until:
            line = TURNS.read_text().partition(" left_ms")[0]
            if not seen or seen[-1][1] != line:
                seen.append((round(now, 3), line))
            time.sleep(LOOK_S)
        return seen

    def end(self) -> None:
        for each in self.all:
            tell("mix", rest=each.ask("rest", "rest"))
            each.end()


def mix(box: Box) -> None:
    seconds = box.seconds
    box.load(module=False)
    one = Mix(box)
    one.phase("alone", seconds / 2, module=False)
    one.work()
    one.phase("default slicing, no module", seconds, module=False)
    one.end()
    box.load()
    for name, row in CLASSES.items():
        tell("mix", row=plain(box.link.class_set(name, **row)))
    one = Mix(box)
    one.work()
    one.phase("default slicing, module loaded", seconds, module=True)
    tell("mix", ordered=[plain(box.link.sched_set(one.server.pid, "high"))]
         + [plain(box.link.sched_set(each.pid, "low")) for each in one.backs])  # fmt: skip
    one.phase("DetShare", seconds * 1.5, module=True)
    one.server.ask("rest", "rest")
    one.server.say(f"run {REQUEST_US} 0")
    one.phase("DetShare, server never rests", seconds / 2, module=True)
    for each in one.all:
        box.link.sched_del(each.pid)
    one.end()
