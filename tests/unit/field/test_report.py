# SPDX-License-Identifier: Apache-2.0
"""The report of the published cells, as a person opens it: from a file, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.tools.bench.field import overview, report
from detshare.tools.bench.field.pairs import pairs
from detshare.tools.bench.field.suites import SUITES
from detshare.tools.bench.field.systems import ALONE
from detshare.tools.bench.field.verdict import shown
from detshare.tools.bench.mix.figures import Back, Figure, Measured, Server
from detshare.tools.bench.mix.store import load
from detshare.tools.browser import chromium
from detshare.tools.browser.chromium import Chromium
from tests.rest import after_first

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PICTURE = RESULTS.parent / "images" / "mix-latency.svg"
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
    out.write_text(report.page(load(CELLS), SUITES["field-tally"], f"raw/{CELLS.name}"), encoding="utf-8")
    return out.as_uri()


@pytest.mark.parametrize("dark", after_first([False, True]), ids=["light", "dark"])
@pytest.mark.parametrize("narrow", after_first([True, False]), ids=["phone", "wide"])
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


@pytest.mark.parametrize("narrow", after_first([True, False]), ids=["phone", "wide"])
def test_suites_of_figures_and_of_trainings_fit_too(browser: Chromium, tmp_path: Path, narrow: bool) -> None:
    """Cells as the other suites have them: a probe, trainings side by side, ten programs with a label."""
    left = Figure("GPU memory left", 2.0, "MiB", ("ERR-002",))
    probes = [
        Measured(f"kill: {way}", "r", "kill", way, (), 1.0, None, notes=("a note " * 40,), figures=(left,))
        for way in (ALONE, "default slicing", "MPS", "DetShare temporal")
    ]
    trainings = SUITES["field-paper"].mixes[0]
    alone = [
        Measured(f"{n}: {ALONE}", "r", n, ALONE, (), 1.0, None, {n: Back(10.0, 0.1)}) for n in trainings.backgrounds
    ]
    both = {name: Back(6.0, 0.1) for name in trainings.backgrounds}
    side = [*alone, Measured(f"{trainings.name}: MPS", "r", trainings.name, "MPS", (), 1.0, None, both)]
    mix = SUITES["field-disb"].mixes[4]
    one = Server(20, 1.0, 2.0, 3.0, 1.0, 20.0, p999=3.0)
    names = mix.backgrounds
    disb = [Measured(f"{n}: {ALONE}", "r", n, ALONE, (), 1.0, None, {n: Back(10.0, 0.1, p99=5.0)}) for n in names]
    disb.append(Measured(f"{mix.server}: {ALONE}", "r", mix.server, ALONE, (), 1.0, one))
    disb.append(Measured(f"{mix.name}: MPS", "r", mix.name, "MPS", (), 1.0, one, {n: Back(9.0, 0.1) for n in names}))
    for suite, cells, text in (
        ("field-gvb", probes, "ERR-002"),
        ("field-paper", side, "1.20"),
        ("field-disb", disb, "vgg-poisson-20"),
    ):
        out = tmp_path / f"{suite}.html"
        out.write_text(report.page(cells, SUITES[suite], "cells.jsonl"), encoding="utf-8")
        tab = browser.tab(390 if narrow else 1400, 800, narrow=narrow)
        tab.go(out.as_uri())
        assert tab.until("document.querySelector('h1').innerText").startswith(suite)
        assert tab.eval(f"document.body.innerText.includes({text!r})")
        assert tab.eval("document.documentElement.scrollWidth <= innerWidth"), suite
        tab.close()


@pytest.mark.parametrize("dark", after_first([False, True]), ids=["light", "dark"])
@pytest.mark.parametrize("narrow", after_first([True, False]), ids=["phone", "wide"])
def test_the_page_over_all_suites_leaves_nothing_out(
    browser: Chromium, tmp_path: Path, dark: bool, narrow: bool
) -> None:
    some = overview.parts(RESULTS)
    out = tmp_path / "field.html"
    out.write_text(overview.page(some, PICTURE), encoding="utf-8")
    tab = browser.tab(390 if narrow else 1400, 800, dark=dark, narrow=narrow)
    tab.go(out.as_uri())
    heads = tab.until("[...document.querySelectorAll('h2')].map(e => e.innerText)")
    assert {suite for suite in SUITES if suite in heads} == set(SUITES), "one that was not measured is named too"
    assert tab.eval("document.querySelectorAll('circle').length") == sum(len(shown(part.cells)) for part in some)
    losses = sum(each.worse for part in some for each in pairs(part.cells))
    head = "let e=[...document.querySelectorAll('h2')].find(e => e.innerText == 'Where ours loses first'),n=0;"
    count = head + "while((e=e.nextElementSibling).tagName!='H2')n+=e.querySelectorAll('tbody tr').length;n"
    assert tab.eval(count) == losses
    assert tab.eval("document.querySelector('img').naturalWidth") > 300
    assert tab.eval(
        "[...document.querySelectorAll('figure')].every(e => e.querySelector('a') && e.querySelector('code'))"
    )
    assert tab.eval("document.documentElement.scrollWidth <= innerWidth")
    shade = tab.eval("getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
    assert [each for each in tab.asked if not each.startswith(("file:", "data:"))] == []
    tab.close()


def test_the_published_page_is_of_the_published_cells() -> None:
    kept = (RESULTS / "field-tally.html").read_text(encoding="utf-8")
    assert kept == report.page(load(CELLS), SUITES["field-tally"], f"raw/{CELLS.name}")


def test_the_published_overview_is_of_the_published_cells_and_its_links_lead_somewhere() -> None:
    kept = (RESULTS / "field.html").read_text(encoding="utf-8")
    assert kept == overview.page(overview.parts(RESULTS), PICTURE), (
        "make it again: detshare bench field overview docs/results --picture docs/images/mix-latency.svg"
    )
    for link in set(re.findall(r'href="([^"]*)"', kept)):
        assert (RESULTS / link).is_file(), link
