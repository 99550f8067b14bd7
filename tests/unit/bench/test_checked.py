# SPDX-License-Identifier: Apache-2.0
"""Tests of a part as a result: outcomes are pytest's own, and a failure or a gap is a target that is missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from detshare.tools.bench import checked

SUITE = """
import pytest
def test_good(record_property): record_property("things", 7)
def test_bad(): assert 1 == 2
def test_broken(missing_fixture): pass
@pytest.mark.skip(reason="x")
def test_left_out(): pass
"""


def test_outcomes_and_counts_become_rows(tmp_path: Path) -> None:
    (tmp_path / "test_some_part.py").write_text(SUITE)
    junit = tmp_path / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={junit}", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    found = checked.cases(junit.read_text())
    assert [(case.name, case.outcome) for case in found] == [
        ("test_good", "passed"), ("test_bad", "failed"), ("test_broken", "failed"), ("test_left_out", "skipped"),
    ]  # fmt: skip
    assert [(row.what, row.value, row.ok) for row in checked.rows(found)] == [
        ("some part: tests", 4, True), ("some part: of them that fail", 2, False),
        ("some part: of them that are left out", 1, False), ("some part: things", 7, True),
    ]  # fmt: skip
