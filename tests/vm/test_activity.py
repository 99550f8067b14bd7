# SPDX-License-Identifier: Apache-2.0
"""Launch events of detshare.ko, and what it does when the driver fails it: in guests, on the simulated driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import Completed
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
@pytest.mark.parametrize("file", ["kmod_activity.py", "kmod_failures.py"])
def test_in_the_guest(guest_pytest: Callable[..., Completed], clients: Path, kernel: str, file: str) -> None:
    done = guest_pytest(
        f"tests/vm/guest/{file}",
        kernel=kernel,
        driver="sim",
        load=True,
        timeout=600,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout
