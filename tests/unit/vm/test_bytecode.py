# SPDX-License-Identifier: Apache-2.0
"""Bytecode for guests is there before they start, whatever this process would leave behind when it imports."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from detshare.tools.vm import bytecode


def test_it_is_made_once_and_anew_for_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / "ctl" / "below"
    folder.mkdir(parents=True)
    good, bad = folder / "good.py", folder / "bad.py"
    good.write_text("X = 1\n", encoding="utf-8")
    bad.write_text("this is no Python\n", encoding="utf-8")
    monkeypatch.setattr(bytecode.checkout, "packages", lambda: [tmp_path / "absent", tmp_path / "ctl"])
    bytecode.compile_ahead()
    made = Path(importlib.util.cache_from_source(str(good)))
    first = made.stat()
    assert not Path(importlib.util.cache_from_source(str(bad))).exists()
    bytecode.compile_ahead()
    assert made.stat().st_ino == first.st_ino, "nothing was to be done"
    good.write_text("X = 22\n", encoding="utf-8")
    os.utime(good, (1, 1))
    bytecode.compile_ahead()
    assert made.stat().st_ino != first.st_ino
