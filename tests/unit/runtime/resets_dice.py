# SPDX-License-Identifier: Apache-2.0
"""Threads that end and begin the contexts of their GPUs while others work and the daemon parks (clients/dice_resets.c).

By hand: PYTHONPATH=.:tests/unit python tests/unit/runtime/resets_dice.py FIRST LAST
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

from memory_dice import wrong
from programs import program, run

__all__ = ["live"]


def live(seed: int, *, tell: bool = False) -> list[str]:
    dice = random.Random(seed)
    threads = "1" if seed % 3 else "2"
    with tempfile.TemporaryDirectory() as folder:
        environment = {"FAKECUDA_TAKEN": str(Path(folder) / "taken")}
        environment["FAKECUDA_DEVICES"] = str(dice.choice((1, 2, 3, 4)))
        environment["FAKECUDA_REFUSE"] = str(dice.choice((0, 0, 20, 100)))
        under = run(program("dice_resets"), str(seed), "150", threads, DETSHARE_PARK="1", **environment)
    if tell:
        print(f"{environment['FAKECUDA_DEVICES']} GPUs\n{under.stdout}{under.stderr}", file=sys.stderr)
    return wrong("under", under)


if __name__ == "__main__":
    from tests.seeds import by_hand

    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    by_hand(live)
