# SPDX-License-Identifier: Apache-2.0
"""detshare.ko in guests: on the simulated driver and on the genuine ones, in both load orders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.tools.replay.run import build
from tests.vm.conftest import Completed

# test_interception.py has the other order of each; the simulated driver shares their entry points
GUESTS = [("6.1", "nvidia-535", "driver-first"), ("6.12", "nvidia-550", "module-first")]
CLIENTS = ("kmod_clients.py", "kmod_adoption.py")


@pytest.fixture(scope="session")
def clients() -> Path:
    """The programs of tests/nvclient, built."""
    return build()


@pytest.mark.thorough
@pytest.mark.parametrize(("kernel", "driver", "order"), GUESTS)
def test_clients(guest_pytest: Callable[..., Completed], kernel: str, driver: str, order: str) -> None:
    files = [f"tests/vm/guest/{name}" for name in CLIENTS]
    done = guest_pytest(*files, kernel=kernel, driver=driver, load=True, order=order, timeout=300)
    assert " passed" in done.stdout
    assert "limits are in force" in done.log


@pytest.mark.parametrize(
    ("kernel", "files"),
    [
        ("6.12", (*CLIENTS, "kmod_limits.py", "kmod_transfers.py", "kmod_sched.py", "kmod_cgroups.py")),
        ("6.12", ("kmod_reach.py",)),
        ("6.1", ("kmod_limits.py", "kmod_cgroups.py")),
        pytest.param("6.1", ("kmod_transfers.py",), marks=pytest.mark.thorough),
        pytest.param("7.3", ("kmod_limits.py",), marks=pytest.mark.thorough),
        pytest.param(
            "7.3", (*CLIENTS, "kmod_transfers.py", "kmod_sched.py", "kmod_cgroups.py"), marks=pytest.mark.thorough
        ),
    ],
    ids=["6.12", "reach-6.12", "6.1", "transfers-6.1", "7.3", "others-7.3"],
)
def test_on_the_simulated_driver(
    guest_pytest: Callable[..., Completed], clients: Path, kernel: str, files: tuple[str, ...]
) -> None:
    done = guest_pytest(
        *(f"tests/vm/guest/{file}" for file in files),
        kernel=kernel,
        driver="sim",
        load=True,
        timeout=900,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout
    assert "limits are in force" in done.log


@pytest.mark.parametrize("kernel", ["6.12", pytest.param("6.1", marks=pytest.mark.thorough)])
def test_where_nothing_can_be_enforced(guest_pytest: Callable[..., Completed], kernel: str) -> None:
    """The guest's tests load driver and module themselves."""
    named = {"kernel": kernel, "driver": "sim", "load": True, "order": "by-hand", "timeout": 600}
    done = guest_pytest("tests/vm/guest/kmod_closed.py", **named)
    assert " passed" in done.stdout
