# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from top_fakes import counted, snapshot

from detshare.tools.screenshots import SHOTS, TITLE, Shot, svg

DOCS = Path(__file__).resolve().parents[3] / "docs"
IMAGES = DOCS / "images"


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_a_picture_shows_the_screen_and_fetches_nothing(shot: Shot) -> None:
    text = svg(snapshot(counted(), backend="model", proof="model"), shot)
    shown = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
    assert "detshare-top" in shown
    assert TITLE in shown
    assert ("4242" in shown) is not shot.help
    assert 'url("http' not in text
    assert "@font-face" not in text


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_the_pictures_that_are_kept_are_of_the_model_and_say_so(shot: Shot) -> None:
    shown = "".join(ElementTree.parse(IMAGES / f"{shot.name}.svg").getroot().itertext()).replace("\xa0", " ")
    assert TITLE in shown
    assert "proof model" in shown


def test_a_page_shows_them_and_names_the_model() -> None:
    text = (DOCS / "use" / "commands.md").read_text()
    assert "images/top-80x24.svg" in text
    assert "images/top-wide.svg" in text
    assert "level **model**" in text
    assert "screenshots" in (DOCS / "develop" / "development.md").read_text()
