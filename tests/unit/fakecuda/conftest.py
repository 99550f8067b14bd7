# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in libcuda and the C programs that test it."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FAKECUDA = ROOT / "tests" / "fakecuda"
BUILD = ROOT / "build" / "fakecuda"


@pytest.fixture(scope="session")
def fakecuda() -> Path:
    """The folder with libcuda.so.1."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:  # other tests build it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(["make", "-s", "-j2", "-C", str(FAKECUDA)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return BUILD
