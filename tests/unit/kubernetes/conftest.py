# SPDX-License-Identifier: Apache-2.0
"""The doubles and the daemon's fake backend can be imported by their names; folders are short enough for sockets."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A socket's path has 107 bytes at most, and kubelet's are long."""
    with tempfile.TemporaryDirectory(prefix="detshare-") as name:
        yield Path(name)
