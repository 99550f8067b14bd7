# SPDX-License-Identifier: Apache-2.0
"""Programs under dice that share memory (clients/dice_ipc.c), with the library and without it: each call answers the
same, all bytes are the same.

By hand: PYTHONPATH=.:tests/unit python tests/unit/runtime/ipc_dice.py FIRST LAST
"""

from __future__ import annotations

import os
import random
import sys
import tempfile

from memory_dice import unlike, wrong
from programs import program, run

__all__ = ["live"]


def live(seed: int, *, tell: bool = False) -> list[str]:
    dice = random.Random(seed)
    roles = "".join(dice.choice("pppplnod") for _ in range(dice.choice((2, 3, 4))))
    words = (str(seed), str(dice.choice((80, 200))), roles)
    with tempfile.TemporaryDirectory() as folder:
        environment = {"FAKECUDA_DEVICES": str(dice.choice((1, 1, 2))), "TMPDIR": folder}
        alone = run(program("dice_ipc"), *words, preload="", **environment)
        under = run(program("dice_ipc"), *words, **environment)
    if tell:
        gpus = environment["FAKECUDA_DEVICES"]
        print(f"{gpus} GPUs, {' '.join(words)}\n{under.stdout}{under.stderr}", file=sys.stderr)
    return [*wrong("alone", alone), *wrong("under", under), *unlike(alone.stdout, under.stdout)]


if __name__ == "__main__":
    from tests.seeds import by_hand

    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    by_hand(live)
