# SPDX-License-Identifier: Apache-2.0
"""The scheduler of detshare.ko in guests, on the simulated driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import Completed
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture

FILES = [
    *("sched_pause.py", "sched_reflex.py", "sched_shares.py", "sched_ceiling.py"),
    *("sched_accounts.py", "sched_states.py", "sched_tame.py"),
    # a rate by the clock of a program that polls: for a machine without other work
    pytest.param("sched_long.py", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("kernel", [pytest.param("6.1", marks=pytest.mark.thorough), "6.12"])
@pytest.mark.parametrize("file", FILES)
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
