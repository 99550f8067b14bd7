# SPDX-License-Identifier: Apache-2.0
"""Backend kmod and the netlink family in a guest: the module, the simulated driver, real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import Completed
from tests.vm.test_ctl_root import puppet
from tests.vm.test_kmod import clients

__all__ = ["clients", "puppet"]  # fixtures


@pytest.mark.parametrize("file", ["ctl_kmod.py", "ctl_netlink.py"])
def test_in_the_guest(guest_pytest: Callable[..., Completed], puppet: Path, file: str) -> None:
    done = guest_pytest(
        f"tests/vm/guest/{file}", driver="sim", load=True, timeout=600, env={"DETSHARE_PUPPET": str(puppet)}
    )
    assert " passed" in done.stdout


@pytest.mark.thorough
def test_pods_of_kubernetes(guest_pytest: Callable[..., Completed], clients: Path) -> None:
    """Kubelet double, API-server double; the module, the daemon and the driver are real."""
    done = guest_pytest(
        "tests/vm/guest/ctl_kubernetes.py",
        driver="sim",
        load=True,
        timeout=600,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    "files",
    [
        ["ctl_sched.py", "ctl_page.py"],
        # a policy's decisions as the kernel's rows, over a killed daemon
        pytest.param(["ctl_policies.py"], marks=pytest.mark.thorough),
    ],
    ids=" ".join,
)
def test_the_scheduler_from_the_command_line(
    guest_pytest: Callable[..., Completed], clients: Path, files: list[str]
) -> None:
    """On programs that keep the GPU busy. An emulated processor takes five minutes for it."""
    done = guest_pytest(
        *(f"tests/vm/guest/{file}" for file in files),
        driver="sim",
        load=True,
        timeout=900,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout
