# SPDX-License-Identifier: Apache-2.0
"""detshare.ebpf in guests: observers beside the stand-in for libcuda, counted exactly."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from detshare.ebpf import build
from tests.vm.conftest import TOP, Completed

KERNELS = [pytest.param("6.1", marks=pytest.mark.thorough), "6.12"]


@pytest.fixture(scope="session")
def objects() -> None:
    """CO-RE objects of the sources as they are."""
    for source in build.sources():
        build.build(source)


@pytest.fixture(scope="session")
def tracee() -> None:
    """The traced program and its libcuda, built in the checkout."""
    for part in ("fakecuda", "tracee"):
        subprocess.run(["make", "-s", "-C", str(TOP / "tests" / part)], check=True)


@pytest.mark.usefixtures("objects", "tracee")
@pytest.mark.parametrize("kernel", KERNELS)
def test_launches_and_dirty_memory(guest_pytest: Callable[..., Completed], kernel: str) -> None:
    files = [f"tests/vm/guest/{name}" for name in ("ebpf_launches.py", "ebpf_dirty.py")]
    done = guest_pytest(*files, kernel=kernel, timeout=900, env={"DETSHARE_EBPF": "libbpf"})
    assert " passed" in done.stdout
