# SPDX-License-Identifier: Apache-2.0
"""The shell, built once with address and undefined-behaviour sanitizers; a daemon; programs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builds import once

sys.path.insert(0, str(Path(__file__).parent))

from gatekit import PARTS, Daemon, Program, build

SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


@pytest.fixture(scope="session")
def gate_shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc; as root: apt-get install gcc")
    return once(tmp_path_factory, "gates", lambda folder: build(folder, "shell", SANITIZE))


@pytest.fixture(scope="session")
def without_rck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shell without the resident control kernel's folder."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc; as root: apt-get install gcc")
    parts = tuple(part for part in PARTS if not part.startswith("rck/"))
    return once(tmp_path_factory, "gates-without", lambda folder: build(folder, "shell", SANITIZE, parts))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    it = Daemon(tmp_path)
    yield it
    it.close()


@pytest.fixture
def start(gate_shell: Path, daemon: Daemon, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs; at the end each must end by itself, without a finding of the sanitizers."""
    programs: list[Program] = []

    def start_one(**environment: str) -> Program:
        programs.append(Program(gate_shell, daemon, tmp_path / f"log{len(programs)}", **environment))
        return programs[-1]

    yield start_one
    for program in programs:
        if program.process.poll() is None:
            assert program.close() == 0, program.log
        else:
            program.close()
        assert "Sanitizer" not in program.log
        assert "runtime error" not in program.log
