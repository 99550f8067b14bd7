# SPDX-License-Identifier: Apache-2.0
"""Doorbell gates in guests, on the simulated driver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import TOP, Completed


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of tests/nvclient, built."""
    out = tmp_path_factory.mktemp("nvclient")
    words = ["make", "-s", "-C", str(TOP / "tests" / "nvclient"), f"OUT={out}", f"-j{os.cpu_count()}"]
    subprocess.run(words, check=True)
    return out


@pytest.mark.parametrize("kernel", [pytest.param("6.1", marks=pytest.mark.thorough), "6.12"])
def test_gates(guest_pytest: Callable[..., Completed], clients: Path, kernel: str) -> None:
    done = guest_pytest(
        "tests/vm/guest/kmod_gates.py",
        kernel=kernel,
        driver="sim",
        load=True,
        timeout=600,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout
