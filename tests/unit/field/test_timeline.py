# SPDX-License-Identifier: Apache-2.0
"""Time lines of cells: recorded on the model, kept in the file of cells, drawn on the page and opened in a browser."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from detshare.ctl.backends.model.live import LiveModel
from detshare.ctl.core.driver import DriverAbsent
from detshare.tools.bench.field import report
from detshare.tools.bench.field import run as runs
from detshare.tools.bench.field.cells import Pace
from detshare.tools.bench.field.suites import Suite
from detshare.tools.bench.field.systems import ALONE, Default, Temporal
from detshare.tools.bench.field.timeline import ANOTHER, MOST, Tape
from detshare.tools.bench.mix.figures import Measured, Timeline
from detshare.tools.bench.mix.store import load
from detshare.tools.bench.session import Options, Session
from detshare.tools.browser import chromium

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from fake_steer import FakeSteer

SMALL = Suite("field-tally", "a test", ("graph",), (("vit",),), load=0.2)


def test_the_log_of_the_model_tells_who_ran_when() -> None:
    found = Tape(LiveModel, seconds=0.3).record({1000: "serve"})
    assert found is not None
    assert set(found.lanes) == {"serve", ANOTHER}
    every = sorted(run for some in found.lanes.values() for run in some)
    assert 2 < len(every) <= MOST
    assert all(begin + length <= later for (begin, length), (later, _) in pairwise(every))
    assert every[-1][0] + every[-1][1] <= found.length_us
    assert 0.1 < found.length_us / 1e6 < 2.0


def test_a_log_that_is_refused_is_asked_for_once() -> None:
    asked = []

    def absent() -> LiveModel:
        asked.append(1)
        raise DriverAbsent("no NVIDIA driver is loaded here")

    tape = Tape(absent)
    assert [tape.record({1: "a"}), tape.record({1: "a"})] == [None, None]
    assert (len(asked), tape.problem) == (1, "no NVIDIA driver is loaded here")


class Made(Tape):
    """A time line for the names that it is asked for."""

    def record(self, names: object) -> Timeline | None:
        assert isinstance(names, dict)
        return Timeline(2000, {name: [(100 * at, 50)] for at, name in enumerate(names.values())})


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Measured]:
    """Of a run with programs that sleep."""

    def argv(self: object) -> list[str]:
        fake = Path(__file__).resolve().parents[1] / "bench" / "fake_mix_worker.py"
        return [sys.executable, str(fake), "--kind", self.kind]  # type: ignore[attr-defined]

    monkeypatch.setattr("detshare.tools.bench.field.programs.Program.argv", property(argv))
    path = tmp_path / "raw" / "cells.jsonl"
    pace = Pace(requests=20, least=0.3, most=0.5, alone=0.3, overhead=0.4, start=2.0, end=0.5)
    with Session(Options("field-tally", 1.0, 1, tmp_path, budget=100.0)) as session:
        session.steer = FakeSteer(tmp_path / "run")  # type: ignore[assignment]
        runs.run(session, runs.Asked(SMALL, (Default(), Temporal()), (), (), pace, 0.05), path, Made())
    return load(path)


def test_each_cell_beside_others_keeps_its_time_line_and_the_page_draws_two(cells: list[Measured]) -> None:
    lines = {cell.scheme: cell.timeline for cell in cells}
    assert lines[ALONE] is None
    assert (
        lines["default slicing"]
        == lines["DetShare temporal"]
        == Timeline(2000, {"graph": [(0, 50)], "vit": [(100, 50)]})
    )
    text = report.page(cells, SMALL, "raw/cells.jsonl")
    assert text.count('<svg class="line"') == 2
    assert "--cells &#x27;graph + vit: DetShare temporal&#x27;" in text
    assert text.count('<a href="raw/cells.jsonl">') == 4
    kept = json.loads(text.split('id="cells">')[1].split("</script>")[0])
    assert not any("timeline" in each for each in kept), "the raw data has them"
    none = [replace(cell, timeline=None) for cell in cells]
    assert '<svg class="line"' not in report.page(none, SMALL, "raw/cells.jsonl")


@pytest.mark.rest
@pytest.mark.e2e
@pytest.mark.skipif(chromium.find() is None, reason="needs a browser: chromium is not installed")
def test_a_browser_draws_them_on_a_phone_too(cells: list[Measured], tmp_path: Path) -> None:
    out = tmp_path / "field.html"
    out.write_text(report.page(cells, SMALL, "raw/cells.jsonl"), encoding="utf-8")
    with chromium.Chromium() as browser:
        for narrow in (False, True):
            for dark in (False, True):
                tab = browser.tab(390 if narrow else 1400, 800, dark=dark, narrow=narrow)
                tab.go(out.as_uri())
                assert tab.until("document.querySelectorAll('svg.line').length") == 2
                boxes = "[...document.querySelectorAll('svg.line path')].map(e => e.getBoundingClientRect().width)"
                assert all(width > 1 for width in tab.eval(boxes))
                assert tab.eval("document.documentElement.scrollWidth <= innerWidth")
                # letters stay readable: the picture scrolls in its box instead of shrinking with the page
                assert tab.eval("document.querySelector('svg.line text').getBoundingClientRect().height") > 8
                fill = tab.eval("getComputedStyle(document.querySelector('svg.line .own')).fill")
                assert fill == ("rgb(108, 178, 255)" if dark else "rgb(11, 99, 206)")
                tab.close()
