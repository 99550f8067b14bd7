# SPDX-License-Identifier: Apache-2.0
"""The stand-in libcuda, and whether observers can be loaded into this machine's kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import made

from detshare.ebpf import build, checks


@pytest.fixture(scope="session")
def libcuda() -> Path:
    """libcuda.so.1 of the stand-in."""
    return made("fakecuda") / "libcuda.so.1"


@pytest.fixture(scope="session")
def compiler() -> None:
    """What CO-RE objects are made with; where it is missing, tests are skipped with the reason."""
    if reason := build.why_not():
        pytest.skip(f"{reason}; as root: apt-get install clang libbpf-dev")


@pytest.fixture(scope="session")
def observers(compiler: None) -> None:
    """CO-RE objects of the sources as they are; where they cannot be loaded, tests are skipped with the reason."""
    for source in build.sources():
        build.build(source)
    loading = checks.loading()
    if loading.ok is not True:
        pytest.skip(f"{loading.text}; {loading.advice}")
