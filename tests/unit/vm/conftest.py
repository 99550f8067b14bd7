# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No unit test touches the cache of the person who runs it."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DETSHARE_CACHE", str(folder))
    return folder
