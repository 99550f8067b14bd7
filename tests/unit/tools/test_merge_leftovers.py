# SPDX-License-Identifier: Apache-2.0
"""No file of this project holds what a merge left: prose is compiled by nobody, so nothing else would notice."""

from __future__ import annotations

import re
from pathlib import Path

from detshare.tools import spdx

ROOT = Path(__file__).resolve().parents[3]
LEFT = re.compile(rb"^(?:<{7} |>{7} |={7}\r?$)", re.MULTILINE)


def test_no_file_holds_markers_of_a_merge() -> None:
    names = spdx.sources(ROOT)
    assert len(names) > 100
    assert [str(name) for name in names if LEFT.search((ROOT / name).read_bytes())] == []


def test_a_marker_would_be_found() -> None:
    assert LEFT.search(b"a\n" + b"<" * 7 + b" HEAD\nb\n")
    assert LEFT.search(b"a\n" + b"=" * 7 + b"\nb\n")
    assert not LEFT.search(b"Title\n========\n")
