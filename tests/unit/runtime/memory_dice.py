# SPDX-License-Identifier: Apache-2.0
"""A program's life under dice (clients/dice.c), with the library and without it: each call answers the same, all bytes
are the same, and nothing is left.

By hand: PYTHONPATH=.:tests/unit python tests/unit/runtime/memory_dice.py FIRST LAST
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import program, run

__all__ = ["live"]

LEFT = re.compile(r"left: (\d+) descriptors, (\d+) bytes of GPUs, (\d+) charged")
MORE = 1000
"""seeds from here on: what few programs do, too (clients/dice_more.c)"""
MORE_DESCRIPTORS = 4
"""that a life may leave: the arena's, a socket's for each kind of helper, made once"""


def parts(out: str) -> list[str]:
    return [line.rstrip() for line in out.splitlines()]


def unlike(alone: str, under: str) -> list[str]:
    """The first line that differs."""
    for one, other in zip(parts(alone), parts(under), strict=False):
        if one != other:
            return [f"alone  {one}\nunder {other}"]
    return [] if len(parts(alone)) == len(parts(under)) else ["one of them ended early"]


def wrong(what: str, result: subprocess.CompletedProcess[str]) -> list[str]:
    said = [line for line in result.stderr.splitlines() if line.startswith("fakecuda:")]
    ended = [f"{what} ended with {result.returncode}"] if result.returncode else []
    return [f"{what}: {line}" for line in said] + ended


def left(alone: str, under: str) -> list[str]:
    """What no life may leave, on GPUs beyond what it leaves alone; descriptors do not get more from life to life."""
    before, after = LEFT.findall(alone), LEFT.findall(under)
    told = [f"life {n} pays for {life[2]} bytes that are free" for n, life in enumerate(after) if int(life[2])]
    told += [
        f"life {n} leaves {int(life[1]) - int(by_itself[1])} bytes"
        for n, (by_itself, life) in enumerate(zip(before, after, strict=False))
        if int(life[1]) > int(by_itself[1])
    ]
    if after and int(after[-1][0]) > int(after[0][0]) + MORE_DESCRIPTORS:
        told.append(f"descriptors: {[int(life[0]) for life in after]}")
    return told


def live(seed: int, *, tell: bool = False) -> list[str]:
    dice = random.Random(seed)
    gpus, threads = dice.choice((1, 1, 2, 3, 4)), dice.choice((1, 1, 2, 4))
    deep = gpus == 1 and threads < 4 and seed % 2 == 0
    words = (str(seed), str(threads), str(dice.choice((60, 150, 240))), str(dice.choice((1, 2, 3))))
    with tempfile.TemporaryDirectory() as folder:
        environment = {"FAKECUDA_TAKEN": str(Path(folder) / "taken"), "FAKECUDA_DEVICES": str(gpus)}
        environment["FAKECUDA_REFUSE"] = str(dice.choice((0, 0, 20, 100)))
        if seed >= MORE:
            environment["DICE_MORE"] = "1"
        if deep:
            environment["FAKECUDA_CHECKPOINTS"] = "1"
        alone = run(program("dice"), *words, preload="", **environment)
        under = run(program("dice"), *words, DETSHARE_PARK="1", **environment)
    if tell:
        print(f"{gpus} GPUs, {' '.join(words)}\n{under.stderr}", file=sys.stderr)
    told = [*wrong("alone", alone), *wrong("under", under)]
    return [*told, *unlike(alone.stdout, under.stdout), *left(alone.stderr, under.stderr)]


if __name__ == "__main__":
    from tests.seeds import by_hand

    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    by_hand(live)
