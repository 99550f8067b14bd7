# SPDX-License-Identifier: Apache-2.0
"""A few lives of policies; thousands by hand (policy_dice.py)."""

from __future__ import annotations

import pytest
from policy_dice import live


@pytest.mark.parametrize("seed", [56, 118, 189])
def test_what_a_policy_set_is_taken_back_whatever_happens(seed: int) -> None:
    assert live(seed) == []
