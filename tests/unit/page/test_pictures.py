# SPDX-License-Identifier: Apache-2.0
"""What is kept of the page: pictures of it, and a measurement that runs."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.tools.bench.page import page
from detshare.tools.browser import chromium, shots
from detshare.tools.browser.shots import SHOTS, Shot

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_each_picture_is_kept_and_shown(shot: Shot) -> None:
    head = (DOCS / "images" / f"{shot.name}.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == (shot.width, shot.height)
    assert f"../images/{shot.name}.png" in (DOCS / "use" / "page.md").read_text()


@pytest.mark.rest
@pytest.mark.e2e
@pytest.mark.skipif(chromium.find() is None, reason="needs a browser: chromium is not installed")
def test_the_pictures_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make screenshots` makes them, with a shorter history."""
    monkeypatch.setattr(shots, "SAMPLES", 3)
    said = CliRunner().invoke(shots.main, [str(tmp_path)])
    assert said.exit_code == 0, said.output
    for shot in SHOTS:
        head = (tmp_path / f"{shot.name}.png").read_bytes()[:24]
        assert struct.unpack(">II", head[16:24]) == (shot.width, shot.height)


@pytest.mark.rest
@pytest.mark.e2e
@pytest.mark.skipif(chromium.find() is None, reason="needs a browser: chromium is not installed")
def test_the_page_can_be_measured(tmp_path: Path, committed: None) -> None:
    words = ["--programs", "12", "--seconds", "1", "--trials", "2", "--out", str(tmp_path)]
    said = CliRunner().invoke(page, words)
    rows = {row["what"]: row for row in json.loads((tmp_path / "page.json").read_text())["rows"]}
    # how long it took is this machine's matter
    for what in ("rows that were built anew meanwhile", "what the browsers complained about"):
        assert rows[what]["ok"], said.output
    assert len(rows) == 14
