# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in driver and the client programs, and runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import client_programs


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder with the programs."""
    client_programs.build("tests/fakecuda", "fakecuda")
    client_programs.build("tests/cudaclients", "cudaclients")
    return client_programs.CLIENTS
