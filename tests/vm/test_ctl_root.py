# SPDX-License-Identifier: Apache-2.0
"""The root backend's suite, which the host runs on the in-process model, on a real kernel with the simulated nvidia.ko.

Its programs are real processes there, found in /proc and reached by pidfd_getfd(2); what happened to them is read from
nvsim's debugfs. tests/unit/root/conftest.py names the tests that say something about the model only.

An emulated processor takes four minutes for it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.conftest import Completed
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture

TOP = Path(__file__).resolve().parents[2]
LEAST = 60
"""tests of the suite that must have run"""


@pytest.fixture(scope="session")
def puppet() -> Path:
    """The program that stands for GPU programs, where the guest sees it too."""
    source = Path(__file__).parent / "guest" / "ctl_puppet.c"
    made = TOP / "build" / "vm" / "ctl_puppet"
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.fail("gcc is missing; as root: apt-get install gcc libc6-dev", pytrace=False)
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:  # other workers use it meanwhile
        fresh = Path(folder) / made.name
        words = [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(fresh), str(source)]
        subprocess.run(words, check=True)
        fresh.replace(made)
    return made


@pytest.mark.thorough
def test_the_root_backends_suite_on_the_simulated_driver(vm: Callable[..., Completed], puppet: Path) -> None:
    command = ["env", "DETSHARE_TEST_DRIVER=kernel", f"DETSHARE_PUPPET={puppet}"]
    command += [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--color=no",
        "-p",
        "no:cacheprovider",
    ]
    command += ["tests/unit/root"]
    done = vm(command, driver="sim", timeout=1200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= LEAST, done.stdout


def test_turns_on_the_simulated_driver(guest_pytest: Callable[..., Completed], clients: Path) -> None:
    """With a daemon, on programs that keep the GPU busy, by the simulated GPU's own account and its log."""
    env = {"DETSHARE_NVCLIENT": str(clients)}
    done = guest_pytest("tests/vm/guest/root_turns.py", driver="sim", timeout=900, mounts=[clients], env=env)
    assert " passed" in done.stdout
