# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detshare.tools import results

sys.path.insert(0, str(Path(__file__).parent))  # fake_steer.py is shared by the tests here


@pytest.fixture(autouse=True)
def committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of tests are of a committed tree, whatever lies uncommitted in this checkout."""
    known = results.commit().removesuffix("-dirty")
    monkeypatch.setattr(results, "commit", lambda: known)
