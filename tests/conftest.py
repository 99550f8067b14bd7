# SPDX-License-Identifier: Apache-2.0
"""For all tests: what needs a GPU is skipped where there is none, and what has no time left; with the reason."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

# importing it takes seconds on an emulated processor: tests/vm says so where its tests in a guest do not use it
if os.environ.get("DETSHARE_TESTS_WITHOUT_HYPOTHESIS") != "1":
    from hypothesis import settings

    # No deadline per example: CI machines stall for longer than any example takes.
    # Failures print how to get them again.
    settings.register_profile("detshare", deadline=None, print_blob=True)
    settings.load_profile("detshare")


BEGIN_UNTIL = "DETSHARE_TESTS_BEGIN_UNTIL"
"""environment: seconds since 1970; `.ci/run` sets it"""
NO_TIME = "left out, no time left to begin"


def _why_no_gpu() -> str | None:
    if not Path("/proc/driver/nvidia/version").exists():
        return "needs a GPU: no NVIDIA driver is loaded (/proc/driver/nvidia/version is not there)"
    if not any(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*")):
        return "needs a GPU: there is no /dev/nvidia0"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _why_no_gpu()
    if reason is not None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """`.ci/run` has so much time and no more: what was begun is ended, what was not is named."""
    until = os.environ.get(BEGIN_UNTIL)
    if until is not None and time.time() > float(until):
        pytest.skip(f"{NO_TIME}: {item.nodeid}")
