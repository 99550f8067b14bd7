# SPDX-License-Identifier: Apache-2.0
"""A few lives of a daemon; thousands by hand (dice.py, several.py)."""

from __future__ import annotations

import dice
import pytest
import several

from tests.rest import after_first


@pytest.mark.parametrize("seed", after_first(range(5)))
def test_what_is_promised_is_kept_whatever_happens(seed: int) -> None:
    assert dice.live(seed) == []


@pytest.mark.parametrize("seed", after_first([7, 9, 23]))
def test_so_it_is_on_several_gpus(seed: int) -> None:
    assert several.live(seed) == []
