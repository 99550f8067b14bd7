# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.vm import order

TOP = Path(__file__).resolve().parents[3]


def test_each_guest_that_make_test_names_is_there() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/vm", "-m", "vm and once"]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=True)
    found = {line.rpartition("/")[2] for line in done.stdout.splitlines() if "::" in line}
    assert found == set(order.ONCE)
