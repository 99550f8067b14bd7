# SPDX-License-Identifier: Apache-2.0
"""The report of the published cells, as a person opens it: from a file, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.tools.bench.field import report
from detshare.tools.bench.field.suites import SUITES
from detshare.tools.bench.field.verdict import shown
from detshare.tools.bench.mix.store import load
from detshare.tools.browser import chromium
from detshare.tools.browser.chromium import Chromium

RESULTS = Path(__file__).parents[3] / "docs" / "results"
CELLS = RESULTS / "raw" / "field-tally-cells.jsonl"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(chromium.find() is None, reason="needs a browser: chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as made:
        yield made


@pytest.fixture
def page(tmp_path: Path) -> str:
    out = tmp_path / "field.html"
    out.write_text(report.page(load(CELLS), SUITES["field-tally"], CELLS.name), encoding="utf-8")
    return out.as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "phone"])
def test_all_is_there_and_nothing_overflows(browser: Chromium, page: str, dark: bool, narrow: bool) -> None:
    tab = browser.tab(390 if narrow else 1400, 800, dark=dark, narrow=narrow)
    tab.go(page)
    cells = shown(load(CELLS))
    assert tab.until("document.querySelector('h1').innerText").startswith("field-tally")
    assert tab.eval("document.querySelectorAll('circle').length") == len(cells)
    assert tab.eval("document.querySelectorAll('details tbody tr').length") == len(cells)
    assert tab.eval("JSON.parse(document.querySelector('#cells').textContent).length") == len(load(CELLS))
    # tables scroll inside their own box; the page itself does not
    assert tab.eval("document.documentElement.scrollWidth <= innerWidth")
    shade = tab.eval("getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
    assert [each for each in tab.asked if not each.startswith("file:")] == []
    tab.close()


def test_the_published_page_is_of_the_published_cells() -> None:
    kept = (RESULTS / "field-tally.html").read_text(encoding="utf-8")
    assert kept == report.page(load(CELLS), SUITES["field-tally"], CELLS.name)
