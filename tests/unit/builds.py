# SPDX-License-Identifier: Apache-2.0
"""What tests below this folder compile: made once for all workers of a run, and taken from build/ by the next one."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
FAKECUDA = BUILD / "fakecuda"
LIBRARY = ROOT / "runtime" / "libdetshare.so"
# folders with a Makefile, by what its products are called below build/
PARTS = {
    "fakecuda": "tests/fakecuda",
    "runtime": "runtime",
    "cudaclients": "tests/cudaclients",
    "runtime-clients": "tests/unit/runtime/clients",
    "tracee": "tests/tracee",
}
NEEDS = {"cudaclients": ("fakecuda",), "tracee": ("fakecuda",), "runtime-clients": ("fakecuda", "runtime")}


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def made(part: str) -> Path:
    """Brings a part of the checkout up to date, once in each process; gives its folder below build/."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("needs gcc and make; as root: apt-get install gcc libc6-dev make")
    for needed in NEEDS.get(part, ()):
        made(needed)
    with _lock(BUILD / f"{part}.lock"):
        done = subprocess.run(
            ["make", "-s", "-j2", "-C", str(ROOT / PARTS[part])], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return BUILD / part


def once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], Path]) -> Path:
    """What `build` makes in the folder that it is given: by the first worker of this run that asks."""
    top = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        top = top.parent
    folder = top / name
    answer = top / f"{name}.path"
    with _lock(top / f"{name}.lock"):
        if not answer.exists():
            folder.mkdir(exist_ok=True)
            answer.write_text(str(build(folder)))
    return Path(answer.read_text())
