# SPDX-License-Identifier: Apache-2.0
"""detshare.ebpf in guests: observers beside the simulated driver and the stand-in for libcuda, counted exactly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.ebpf import build
from tests.vm.conftest import TOP, Completed
from tests.vm.test_ctl_root import puppet
from tests.vm.test_kmod import clients

__all__ = ["clients", "puppet"]  # fixtures

KERNELS = ["6.1", "6.12"]


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


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("kernel", KERNELS)
def test_objects_and_latency(guest_pytest: Callable[..., Completed], clients: Path, kernel: str) -> None:
    done = guest_pytest(
        "tests/vm/guest/ebpf_objects.py",
        "tests/vm/guest/ebpf_latency.py",
        kernel=kernel,
        driver="sim",
        load=True,
        timeout=900,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients), "DETSHARE_EBPF": "libbpf"},
    )
    assert " passed" in done.stdout


@pytest.mark.usefixtures("objects", "tracee")
@pytest.mark.parametrize("kernel", KERNELS)
def test_launches_and_dirty_memory(guest_pytest: Callable[..., Completed], kernel: str) -> None:
    files = [f"tests/vm/guest/{name}" for name in ("ebpf_launches.py", "ebpf_dirty.py")]
    done = guest_pytest(*files, kernel=kernel, timeout=900, env={"DETSHARE_EBPF": "libbpf"})
    assert " passed" in done.stdout


@pytest.mark.usefixtures("objects")
def test_births_wake_the_root_backend(vm: Callable[..., Completed], puppet: Path) -> None:
    words = ["env", "DETSHARE_TEST_DRIVER=kernel", f"DETSHARE_PUPPET={puppet}", "DETSHARE_EBPF=libbpf"]
    words += [sys.executable, "-m", "pytest", "-q", "--color=no", "-s", "-p", "no:cacheprovider"]
    done = vm([*words, "tests/unit/root/test_births.py"], driver="sim", timeout=900)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "2 passed" in done.stdout


# Kernels that were cached before the link was made with them.
LINK_SOURCE = """
modules=/lib/modules/$(uname -r)
headers=$(readlink -f "$modules/build")
[ -e "$modules/source" ] || ln -sfn "${headers%/*}"/linux-headers-*-common "$modules/source"
exec "$@"
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("tracee")
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_source_by_bcc(vm: Callable[..., Completed], kernel: str) -> None:
    """bcc compiles in the guest, which takes an emulated processor minutes."""
    test = "tests/vm/guest/ebpf_launches.py::test_10007_launches_are_counted_exactly"
    words = ["env", "DETSHARE_EBPF=bcc", "DETSHARE_TESTS_WITHOUT_HYPOTHESIS=1", sys.executable, "-m", "pytest"]
    words += ["-q", "--color=no", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", test]
    done = vm(["sh", "-c", LINK_SOURCE, "sh", *words], kernel=kernel, timeout=1500)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "1 passed" in done.stdout
