# SPDX-License-Identifier: Apache-2.0
"""The observers of libcuda on this machine's own kernel, where we may load them: the tests that guests run too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builds import made

TOP = Path(__file__).resolve().parents[3]


@pytest.mark.e2e
@pytest.mark.usefixtures("observers")
@pytest.mark.parametrize(
    "file",
    [
        "ebpf_launches.py",
        "ebpf_dirty_ctl.py",
        pytest.param("ebpf_dirty.py", marks=pytest.mark.rest),
        pytest.param("ebpf_dirty_images.py", marks=pytest.mark.rest),
    ],
)
def test_launches_and_dirty_memory_on_this_kernel(file: str) -> None:
    made("tracee")
    words = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-o", "addopts="]
    done = subprocess.run(
        [*words, "--import-mode=importlib", f"tests/vm/guest/{file}"],
        cwd=TOP,
        env={**os.environ, "DETSHARE_VM": "1", "DETSHARE_EBPF": "libbpf"},  # collected as in a guest
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
