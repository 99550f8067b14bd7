# SPDX-License-Identifier: Apache-2.0
"""What .ci/run has no time to begin is named, never passed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import BEGIN_UNTIL
from tests.vm.conftest import left_out

TOP = Path(__file__).resolve().parents[3]
ONE = "tests/unit/tools/test_time_left.py::test_one_that_passes"


def test_one_that_passes() -> None:
    assert TOP.is_dir()


def _run(until: float) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", ONE]
    environment = {**os.environ, BEGIN_UNTIL: str(until)}
    return subprocess.run(words, cwd=TOP, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_test_is_begun_only_while_there_is_time() -> None:
    late = _run(time.time() - 1)
    # .ci/run counts these lines
    assert "^SKIPPED .*left out, no time left" in (TOP / ".ci" / "run").read_text()
    assert re.search(r"^SKIPPED .*left out, no time left to begin: " + re.escape(ONE), late, re.MULTILINE)
    assert "passed" not in late
    early = _run(time.time() + 3600)
    assert "1 passed" in early
    # of a guest's tests the guest's test says so, and is counted
    assert ONE in (left_out(late) or "")
    assert left_out(early) is None
