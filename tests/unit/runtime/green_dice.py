# SPDX-License-Identifier: Apache-2.0
"""A program with green contexts of its own under dice (clients/dice_green.c), with the library and without it: each
call answers the same, all bytes and numbers of SMs are the same, and no order is lost.

By hand: PYTHONPATH=.:tests/unit python tests/unit/runtime/green_dice.py FIRST LAST
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

from memory_dice import unlike, wrong
from programs import program, run

__all__ = ["live"]


def live(seed: int, *, tell: bool = False) -> list[str]:
    words = (str(seed), str(random.Random(seed).choice((100, 300))))
    with tempfile.TemporaryDirectory() as folder:
        environment = {"FAKECUDA_TAKEN": str(Path(folder) / "taken")}
        alone = run(program("dice_green"), *words, preload="", **environment)
        under = run(program("dice_green"), *words, DETSHARE_PARK=str(seed % 3 and 1), **environment)
    if tell:
        print(f"{' '.join(words)}\n{under.stdout}{under.stderr}", file=sys.stderr)
    return [*wrong("alone", alone), *wrong("under", under), *unlike(alone.stdout, under.stdout)]


if __name__ == "__main__":
    from tests.seeds import by_hand

    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    by_hand(live)
