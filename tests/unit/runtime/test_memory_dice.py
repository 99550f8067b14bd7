# SPDX-License-Identifier: Apache-2.0
"""A few lives of a program; hundreds by hand (memory_dice.py)."""

from __future__ import annotations

import pytest
from memory_dice import live

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("seed", [1, 5, 14])
def test_a_life_is_the_same_under_the_library(seed: int) -> None:
    assert live(seed) == []
