# SPDX-License-Identifier: Apache-2.0
"""tools/setup.sh in a checkout whose path nobody would choose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]


def setup(top: Path, empty: Path, python: str = sys.executable) -> str:
    """What it says; with a pip that installs nothing, for DetShare is found by PYTHONPATH."""
    parts = (empty, TOP / "ctl", Path(sysconfig.get_path("purelib")))
    told = {**os.environ, "PYTHON": python, "PYTHONPATH": os.pathsep.join(map(str, parts))}
    done = subprocess.run(["tools/setup.sh"], cwd=top, env=told, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (python == sys.executable), done.stderr
    return done.stderr


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder with a pip, and with the system packages that setup.sh would install."""
    (tmp_path / "own/pip").mkdir(parents=True)
    for name in ("__init__", "__main__"):
        (tmp_path / f"own/pip/{name}.py").touch()
    return tmp_path / "own"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that nothing is installed from: apt-get is not found."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("bash", "sh", "env", "dirname", "head", "grep", "rm", "cat", "chmod"):
        (commands / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(commands))
    top = tmp_path / "a folder of é"
    (top / "tools").mkdir(parents=True)
    # as make calls it, by a relative path, where cd looks in other places first
    (tmp_path / "elsewhere/tools").mkdir(parents=True)
    monkeypatch.setenv("CDPATH", str(tmp_path / "elsewhere"))
    shutil.copy2(TOP / "tools/setup.sh", top / "tools")
    return top


def test_a_path_with_a_space_gets_commands_that_run_and_keeps_its_venv(checkout: Path, empty: Path) -> None:
    setup(checkout, empty)
    kept = checkout / ".venv/kept"
    kept.touch()
    command = checkout / ".venv/bin/detshare-vm"
    path = os.pathsep.join(map(str, (TOP / "ctl", sysconfig.get_path("purelib"))))
    for words in ([command], [sys.executable, command]):
        done = subprocess.run(
            [*words, "--help"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "detshare-vm" in done.stdout
    assert "does not work here" not in setup(checkout, empty)
    assert kept.exists()
    # a .venv that was moved goes, whether a new one can be made or not
    moved = checkout.rename(checkout.with_name("folder of é"))
    without = moved / "python"
    without.write_text(f'#!/bin/sh\n[ "$2" = venv ] && exit 1\nexec \'{sys.executable}\' "$@"\n')
    without.chmod(0o755)
    assert "does not work here" in setup(moved, empty, str(without))
    assert not (moved / ".venv").exists()
