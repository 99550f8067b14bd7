# SPDX-License-Identifier: Apache-2.0
"""detshare.ebpf in guests: observers beside the simulated driver and the stand-in for libcuda, counted exactly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.ebpf import bcc, build
from detshare.tools.bench.ebpf import native
from tests.vm.conftest import TOP, Completed
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture

# births takes the module away, lockdown everything
GUEST = "tests/vm/guest"
OF_THE_DRIVER = [
    f"{GUEST}/{name}"
    for name in ("ebpf_objects.py", "ebpf_recorder.py", "ebpf_latency.py", "ebpf_births.py", "ebpf_lockdown.py")
]
OF_CUDA = [f"{GUEST}/{name}" for name in ("ebpf_launches.py", "ebpf_dirty.py", "ebpf_dirty_images.py")]
"""all of them run on this machine's own kernel besides, in tests/unit/ebpf/test_here.py"""
SOME = [
    f"{OF_CUDA[0]}::test_10007_launches_are_counted_exactly",
    f"{OF_CUDA[0]}::test_503_copies_are_counted_with_direction_and_bytes",
    f"{OF_CUDA[0]}::test_a_program_without_libcuda_makes_the_view_partial",
    f"{OF_CUDA[1]}::test_never_less_than_what_was_written",
]
ALL = [*OF_CUDA, "tests/vm/guest/ebpf_gates.py"]
GUESTS = [
    pytest.param("6.12", SOME, id="6.12"),
    pytest.param("6.1", ALL, id="6.1", marks=pytest.mark.thorough),
    pytest.param("6.12", ALL, id="6.12-all", marks=pytest.mark.thorough),
]


@pytest.fixture(scope="session")
def objects() -> None:
    """CO-RE objects of the sources as they are."""
    for source in build.sources():
        build.build(source)


@pytest.fixture(scope="session")
def tracee() -> None:
    """The traced program and its libcuda, and what measurements of observers run, built in the checkout."""
    native.build()
    for part in ("fakecuda", "tracee"):
        subprocess.run(["make", "-s", "-C", str(TOP / "tests" / part)], check=True)


@pytest.mark.usefixtures("objects", "tracee")
@pytest.mark.parametrize(("kernel", "first"), GUESTS)
def test_observers(guest_pytest: Callable[..., Completed], clients: Path, kernel: str, first: list[str]) -> None:
    done = guest_pytest(
        *first,
        *OF_THE_DRIVER,
        kernel=kernel,
        driver="sim",
        load=True,
        timeout=900,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients), "DETSHARE_EBPF": "libbpf"},
    )
    assert " passed" in done.stdout


# Kernels that were cached before the link was made with them.
LINK_SOURCE = """
modules=/lib/modules/$(uname -r)
headers=$(readlink -f "$modules/build")
[ -e "$modules/source" ] || ln -sfn "${headers%/*}"/linux-headers-*-common "$modules/source"
exec "$@"
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("objects", "tracee")
@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_the_same_source_by_bcc(vm: Callable[..., Completed], kernel: str) -> None:
    """bcc compiles in the guest, which takes an emulated processor minutes."""
    if bcc.module() is None:
        pytest.skip("bcc is not installed; as root: apt-get install python3-bpfcc")
    words = ["env", "DETSHARE_TESTS_WITHOUT_HYPOTHESIS=1", sys.executable, "-m", "pytest", "-q", "--color=no"]
    words += ["-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "tests/vm/guest/ebpf_bcc.py"]
    done = vm(["sh", "-c", LINK_SOURCE, "sh", *words], kernel=kernel, driver="sim", timeout=1500)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "4 passed" in done.stdout
