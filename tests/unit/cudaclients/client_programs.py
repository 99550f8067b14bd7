# SPDX-License-Identifier: Apache-2.0
"""The client programs of tests/cudaclients: how to build and to run them on the stand-in driver."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from builds import FAKECUDA

from tests import patience

COMMANDS: dict[str, list[str]] = {
    "launches": [],
    "order": [],
    "threads": [],
    "contexts": [],
    "forks": [],
    "graphs": [],
    "memory": [],
    "view": [],
    "steady": ["--rounds", "20"],
}


def run(program: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKECUDA_", "DETSHARE_", "LD_"))}
    environment = {**kept, "LD_LIBRARY_PATH": str(FAKECUDA), **more}
    return patience.run([str(program), *words], env=environment, capture_output=True, text=True, check=False)


def result(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What it computed; how long it took is left out."""
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("rounds")]
