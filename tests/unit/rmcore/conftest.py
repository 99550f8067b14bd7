# SPDX-License-Identifier: Apache-2.0
"""The RM core, built once with address and undefined-behaviour sanitizers."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builds import once

sys.path.insert(0, str(Path(__file__).parent))

from rmshell import SANITIZE, SOURCES, Core, build


@pytest.fixture(scope="session")
def shell_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the test shell."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc; as root: apt-get install gcc")
    return once(tmp_path_factory, "rmcore", lambda folder: build(folder, "shell", SOURCES, SANITIZE))


@pytest.fixture
def core(shell_program: Path) -> Iterator[Core]:
    """A fresh core; at the end nothing may be left in it."""
    process = Core(shell_program)
    yield process
    process.close()


@pytest.fixture(scope="module")
def decoder(shell_program: Path) -> Iterator[Core]:
    """A core for what keeps no state, shared by a module's tests."""
    process = Core(shell_program)
    yield process
    process.close()
