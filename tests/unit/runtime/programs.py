# SPDX-License-Identifier: Apache-2.0
"""C programs that use the stand-in driver (tests/fakecuda), with libdetshare.so preloaded or without."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from builds import BUILD, LIBRARY, ROOT, made
from builds import FAKECUDA as DRIVER

from tests import patience

CLIENTS = Path(__file__).parent / "clients"
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]
LAYERS = ("base", "shm", "stream", "api")
INCLUDES = [*(f"-I{ROOT / 'runtime' / layer}" for layer in LAYERS), f"-I{ROOT / 'tests' / 'fakecuda'}"]


def program(name: str) -> Path:
    """A client, linked against the driver."""
    return made("runtime-clients") / name


def alone(name: str) -> Path:
    """A client that is linked against nothing of ours."""
    return made("runtime-clients") / f"{name}.alone"


@functools.cache
def boards() -> Path:
    """A folder for the boards of this worker's clients."""
    folder = Path(tempfile.mkdtemp(prefix="boards-", dir=BUILD))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run(
    path: Path, *args: str, preload: str | None = None, stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Its run, with the library preloaded unless `preload` says otherwise; stderr holds what the driver found wrong."""
    full = {
        **os.environ,
        "LD_LIBRARY_PATH": str(DRIVER),
        "LD_PRELOAD": str(LIBRARY) if preload is None else preload,
        "TMPDIR": str(boards()),
        **env,
    }
    return patience.run([str(path), *args], env=full, input=stdin, capture_output=True, text=True, check=False)


def good(result: subprocess.CompletedProcess[str]) -> str:
    """Its output, if it ended well and the driver saw no wrong use."""
    assert result.returncode == 0, f"{result.returncode}\n{result.stdout}{result.stderr}"
    assert "fakecuda:" not in result.stderr, result.stderr
    return result.stdout
