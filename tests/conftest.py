# SPDX-License-Identifier: Apache-2.0
"""For all tests: what needs a GPU is skipped, with the reason, where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# importing it takes seconds on an emulated processor: tests/vm says so where its tests in a guest do not use it
if os.environ.get("DETSHARE_TESTS_WITHOUT_HYPOTHESIS") != "1":
    from hypothesis import settings

    # No deadline per example: CI machines stall for longer than any example takes.
    # Failures print how to get them again.
    settings.register_profile("detshare", deadline=None, print_blob=True)
    settings.load_profile("detshare")


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
