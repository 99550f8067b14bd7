# SPDX-License-Identifier: Apache-2.0
"""The simulator's tables and recorded answers are what the data gives; who changes either runs the generators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NVSIM = Path(__file__).resolve().parents[2] / "nvsim"


@pytest.mark.parametrize("generator", ["generate.py", "generate_answers.py"])
def test_generated_files_are_up_to_date(generator: str) -> None:
    done = subprocess.run(
        [sys.executable, str(NVSIM / generator), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("generator", ["generate.py", "generate_answers.py"])
def test_bad_usage_is_said(generator: str) -> None:
    done = subprocess.run(
        [sys.executable, str(NVSIM / generator), "--chek"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "usage:" in done.stderr
