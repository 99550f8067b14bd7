# SPDX-License-Identifier: Apache-2.0
"""docs/develop/write-a-policy.md, word for word: its file is written, its commands run, their output is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import ROOT
from pages import blocks, play, steps

PAGE = "develop/write-a-policy.md"

pytestmark = pytest.mark.e2e


def test_the_page_is_true(tmp_path: Path) -> None:
    assert "bursts_first.py" in (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    (source,) = blocks(PAGE, "python")
    (tmp_path / "bursts_first.py").write_text(source, encoding="utf-8")
    assert len(steps(PAGE)) > 12
    play(PAGE, tmp_path)


def test_the_pages_policy_is_short() -> None:
    (source,) = blocks(PAGE, "python")
    assert len(source.splitlines()) <= 35
