# SPDX-License-Identifier: Apache-2.0
"""Doorbell gates in guests, on the simulated driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import Completed
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture


@pytest.mark.parametrize(
    "kernel", ["6.12", *(pytest.param(kernel, marks=pytest.mark.thorough) for kernel in ("6.1", "7.3"))]
)
def test_gates(guest_pytest: Callable[..., Completed], clients: Path, kernel: str) -> None:
    done = guest_pytest(
        "tests/vm/guest/kmod_gates.py",
        "tests/vm/guest/kmod_ways.py",
        kernel=kernel,
        driver="sim",
        load=True,
        timeout=600,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout
