# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # fake_steer.py is shared by the tests here


@pytest.fixture(autouse=True)
def of_a_commit(committed: None) -> None:
    """All of them write results."""
