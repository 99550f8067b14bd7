# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in driver and the client programs, and runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builds import made

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder with the programs."""
    return made("cudaclients")
