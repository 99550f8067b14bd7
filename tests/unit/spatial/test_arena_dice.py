# SPDX-License-Identifier: Apache-2.0
"""Parking under dice. More: ARENA_SEEDS=200 pytest tests/unit/spatial/test_arena_dice.py."""

from __future__ import annotations

import os

import pytest
from arena_dice import Life


@pytest.mark.parametrize("seed", range(int(os.environ.get("ARENA_SEEDS", "6"))))
def test_whoever_lies_stays_silent_or_dies_the_arena_is_shared_and_nobody_is_kept_away(seed: int) -> None:
    Life(seed).live(300)
