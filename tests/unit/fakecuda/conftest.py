# SPDX-License-Identifier: Apache-2.0
"""The stand-in libcuda, built."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import made


@pytest.fixture(scope="session")
def fakecuda() -> Path:
    """The folder with libcuda.so.1."""
    return made("fakecuda")
