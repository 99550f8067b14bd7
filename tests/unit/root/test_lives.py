# SPDX-License-Identifier: Apache-2.0
"""A few lives of a daemon; thousands by hand (lives.py)."""

from __future__ import annotations

import pytest

from tests.unit.root.conftest import KERNEL
from tests.unit.root.lives import live


@pytest.mark.skipif(KERNEL, reason="of the model only: builds a machine for each life")
@pytest.mark.parametrize("seed", [1, 26, 103])
def test_what_is_promised_is_kept_whatever_happens(seed: int) -> None:
    assert live(seed) == []
