# SPDX-License-Identifier: Apache-2.0
"""A few lives of a daemon; thousands by hand (dice.py)."""

from __future__ import annotations

import pytest
from dice import live


@pytest.mark.parametrize("seed", range(5))
def test_what_is_promised_is_kept_whatever_happens(seed: int) -> None:
    assert live(seed) == []
