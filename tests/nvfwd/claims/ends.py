# SPDX-License-Identifier: Apache-2.0
"""Programs that are killed at any moment, and a module that goes and comes back under load."""

from __future__ import annotations

import random
import time
from contextlib import suppress

from claims.box import Box, Program, helper, plain, rows, tell

ROUNDS, KILLED = 6, 3
RELOADS = 3
HELD = ("handles", "maps", "pins", "waits")


def storm(box: Box) -> None:
    """From the first call of libcuda's to kernels that run."""
    box.load()
    chance = random.Random(1)
    for number in range(ROUNDS):
        before = helper()
        some = [Program(box.programs / "spin") for _ in range(KILLED)]
        for each in some:
            with suppress(BrokenPipeError):  # it has ended, which its code tells
                each.say("run 500 0")
        for each in sorted(some, key=lambda _: chance.random()):
            time.sleep(chance.uniform(0.05, 0.9))
            tell("storm", round=number, ready=bool(each.lines), ended=each.end())
        time.sleep(0.4)
        after = helper()
        tell("storm", round=number, killed=KILLED, left={name: after[name] - before[name] for name in HELD},
             descriptors=after["descriptors"] - before["descriptors"], vctxs=len(box.link.vctx_get()))  # fmt: skip


def unload(box: Box) -> None:
    box.load()
    one, other = box.start("spin", 2)
    rate = one.ask("rate", "rate")["per_us"]
    other.ask(f"rate {rate}", "rate")
    one.say("run 500 5")
    other.say("run 2000 0")
    time.sleep(0.5)
    for number in range(RELOADS):
        for words, do in (("rmmod", box.remove), ("insmod", box.insert)):
            begun = time.monotonic()
            do()
            took, before, kernels = time.monotonic() - begun, len(one.lines), other.kernels()
            time.sleep(0.8)
            tell("unload", words=words, round=number, took_ms=1000 * took, requests=len(one.lines) - before,
                 kernels=other.kernels() - kernels)  # fmt: skip
    for each in (one, other):
        tell("unload", rest=each.ask("rest", "rest"))
        tell("unload", answer=each.ask("alloc 64", "alloc"))  # a program is known again by its next call
    adopted = [rows(box.link.vctx_get(each.pid)) for each in (one, other)]
    tell("unload", adopted=adopted, status=plain(box.link.status_get()))
