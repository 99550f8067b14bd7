# SPDX-License-Identifier: Apache-2.0
"""The stand-in libcuda and the traced program, built."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import made


@pytest.fixture(scope="session")
def libcuda() -> Path:
    """libcuda.so.1 of the stand-in."""
    return made("fakecuda") / "libcuda.so.1"
