# SPDX-License-Identifier: Apache-2.0
"""The picture of a mix's requests: made from published raw output, the same each time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from detshare.tools import mix_picture

DOCS = Path(__file__).resolve().parents[3] / "docs"
MIX = "graph + vit + gpt2 + fft"


def result(*schemes: str) -> dict[str, object]:
    rows = [{"what": f"{MIX}: {scheme}: p99 of 3 requests", "value": 2000.0, "baseline": 1500.0} for scheme in schemes]
    return {"rows": rows}


def raw(*schemes: str) -> list[str]:
    lines = []
    for number, scheme in enumerate(schemes):
        begin = 100.0 * number
        at = [begin - 1, begin, begin + 1, begin + 99]
        lines.append({"event": "requests", "program": "graph", "at": at, "latency_us": [1.0, 1600.0, 12000.0, 2.0]})
        lines.append({"event": "played", "what": f"{MIX}: {scheme}", "begin": begin})
    return [json.dumps(line) for line in lines]


def test_a_strip_has_the_requests_of_its_scheme_alone() -> None:
    found = mix_picture.strips(raw(*mix_picture.STRIPS), result(*mix_picture.STRIPS))
    assert [strip.scheme for strip in found] == list(mix_picture.STRIPS)
    assert all(strip.requests == ((0.0, 1.6), (1.0, 12.0)) for strip in found)
    assert {(strip.p99_ms, strip.alone_ms) for strip in found} == {(2.0, 1.5)}


def test_a_scheme_that_was_not_measured_is_named() -> None:
    with pytest.raises(KeyError, match="MPS with shares"):
        mix_picture.strips(raw(*mix_picture.STRIPS), result("default slicing", "MPS with client priority"))


def test_what_is_beyond_the_scale_is_drawn_at_its_end() -> None:
    page = mix_picture.svg([mix_picture.Strip("default slicing", ((0.0, 99.0),), 2.0, 1.5)], "a GPU")
    assert mix_picture.svg([mix_picture.Strip("default slicing", ((0.0, 10.0),), 2.0, 1.5)], "a GPU") == page


def test_the_picture_that_is_kept_is_of_the_published_run(tmp_path: Path) -> None:
    assert mix_picture.main([str(DOCS / "results"), str(tmp_path)]) == 0
    made = (tmp_path / mix_picture.NAME).read_text(encoding="utf-8")
    assert made == (DOCS / "images" / mix_picture.NAME).read_text(encoding="utf-8")
    shown = "".join(ElementTree.fromstring(made).itertext())
    assert "NVIDIA H200" in shown
    assert "level gpu" in shown
    with gzip.open(DOCS / "results" / "raw" / "mix.jsonl.gz", "rt") as stream:
        requests = mix_picture.strips(stream, json.loads((DOCS / "results" / "mix.json").read_text()))
    assert [len(strip.requests) for strip in requests] == [250] * 4


def test_without_results_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mix_picture.main([str(tmp_path), str(tmp_path)]) == 1
    assert "next: detshare bench mix" in capsys.readouterr().err
    assert mix_picture.main([]) == 2
