# SPDX-License-Identifier: Apache-2.0
"""detshare.ko in guests: on the simulated driver and on the genuine ones, in both load orders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import TOP, Completed

# both load orders on each genuine driver; the simulated one shares their entry points
GUESTS = [
    ("6.1", "nvidia-535", "driver-first"),
    ("6.1", "nvidia-535", "module-first"),
    ("6.12", "nvidia-550", "driver-first"),
    ("6.12", "nvidia-550", "module-first"),
    ("6.12", "sim", "driver-first"),
]


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of tests/nvclient, built."""
    out = tmp_path_factory.mktemp("nvclient")
    words = ["make", "-s", "-C", str(TOP / "tests" / "nvclient"), f"OUT={out}", f"-j{os.cpu_count()}"]
    subprocess.run(words, check=True)
    return out


@pytest.mark.parametrize(("kernel", "driver", "order"), GUESTS)
def test_clients(guest_pytest: Callable[..., Completed], kernel: str, driver: str, order: str) -> None:
    files = [f"tests/vm/guest/{name}" for name in ("kmod_clients.py", "kmod_adoption.py")]
    done = guest_pytest(*files, kernel=kernel, driver=driver, load=True, order=order, timeout=300)
    assert " passed" in done.stdout
    assert "limits are in force" in done.log


@pytest.mark.parametrize(
    ("kernel", "files"),
    [
        ("6.12", ("kmod_limits.py", "kmod_transfers.py")),
        ("6.1", ("kmod_limits.py", "kmod_transfers.py", "kmod_cgroups.py")),
        ("6.12", ("kmod_sched.py", "kmod_cgroups.py")),
    ],
    ids=["limits-6.12", "limits-6.1", "sched-6.12"],
)
def test_on_the_simulated_driver(
    guest_pytest: Callable[..., Completed], clients: Path, kernel: str, files: tuple[str, ...]
) -> None:
    done = guest_pytest(
        *(f"tests/vm/guest/{file}" for file in files),
        kernel=kernel,
        driver="sim",
        load=True,
        timeout=400,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout
