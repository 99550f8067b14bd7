# SPDX-License-Identifier: Apache-2.0
"""`make demo` on a machine without a GPU, as a person runs it.

Not in `make test`: CI plays `make demo` itself, which ends with 1 where set-priority did not help.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.alone, pytest.mark.thorough]
TOP = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-c", "from detshare.tools.demo import demo; demo()", "--vm", "--json"]


@pytest.fixture(scope="module")
def played() -> subprocess.CompletedProcess[str]:
    return subprocess.run(DEMO, capture_output=True, text=True, check=False, cwd=TOP, stdin=subprocess.DEVNULL)


def test_the_demo_shows_what_it_promises(played: subprocess.CompletedProcess[str]) -> None:
    shown = played.stderr
    assert played.returncode == 0, shown
    for words in (
        "takes backend kmod",
        "says what a recorded H100 program said",
        "$ detshare-ctl ps",
        "memory limit none -> 2.0G",
        "held by the kernel: pid",
        "asks for 3G more: refused with NV_ERR_NO_MEMORY",
        "asks for 512M more: granted",
        "it sees a GPU of 2.0G",
        "level high",
        "level low",
        "proof: model",
    ):
        assert words in shown, shown
    assert shown.count("$ detshare-top --once") == 2
    assert sum(line.startswith("[") and " s] " in line for line in shown.splitlines()) >= 8, "a line for each step"


def test_the_closing_table(played: subprocess.CompletedProcess[str]) -> None:
    closing = json.loads(played.stdout)
    assert closing["proof"] == "model"
    assert closing["better"] is True
    phases = closing["phases"]
    assert phases["after"]["p50_us"] < phases["before"]["p50_us"]
    assert all(phase["count"] > 20 for phase in phases.values())
    for phase in ("before", "after"):
        assert phases[phase]["throughput"] >= 2 * phases[phase]["slowest"] > 0, "both background programs go on"
