# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detshare.tools import results

# importmode=importlib puts no folder on the path; builds.py is shared by all tests below
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def head() -> str:
    """The commit of this checkout, whatever lies uncommitted in it."""
    return results.commit().removesuffix("-dirty")


@pytest.fixture
def committed(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of the test are of a committed tree, those of its child processes too."""
    monkeypatch.setenv("DETSHARE_COMMIT", head)
