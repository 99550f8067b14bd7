# SPDX-License-Identifier: Apache-2.0
"""Seeds of dice, played by hand."""

from __future__ import annotations

import sys
from typing import Protocol

__all__ = ["by_hand"]


class Live(Protocol):
    """What one seed did not keep, in words. `tell`: with what happened."""

    def __call__(self, seed: int, *, tell: bool = False) -> list[str]: ...


def by_hand(live: Live) -> None:
    """Play the seeds FIRST to LAST - 1 of the command line; a line for each that says what was not kept."""
    first, last = map(int, sys.argv[1:])
    for each in range(first, last):
        for text in live(each, tell=last - first == 1) or ["kept"]:
            print(f"seed {each}: {text}", flush=True)
