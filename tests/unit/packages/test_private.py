# SPDX-License-Identifier: Apache-2.0
"""The folder of packages that a distribution's package brings: first for our own processes, for no others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detshare.ctl.core import private


def test_a_folder_that_is_there_comes_first_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    private.prefer(str(tmp_path))
    private.prefer(str(tmp_path))
    assert sys.path == [str(tmp_path), *before]


def test_one_that_is_not_there_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    private.prefer(str(tmp_path / "none"))
    assert sys.path == before


def test_a_checkout_has_none_and_it_lies_beside_our_packages() -> None:
    folder = Path(private.FOLDER)
    assert not folder.exists()
    assert (folder.parent / "ctl/core/private.py").is_file()
