# SPDX-License-Identifier: Apache-2.0
"""The client programs of tests/cudaclients: how to build and to run them on the stand-in driver."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FAKECUDA = ROOT / "build" / "fakecuda"
CLIENTS = ROOT / "build" / "cudaclients"
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


def build(source: str, name: str) -> None:
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:  # other tests build it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        make = ["make", "-s", "-j2", "-C", str(ROOT / source)]
        made = subprocess.run(make, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def run(program: Path, *words: str, timeout: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKECUDA_", "DETSHARE_", "LD_"))}
    environment = {**kept, "LD_LIBRARY_PATH": str(FAKECUDA), **more}
    return subprocess.run(
        [str(program), *words], env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def result(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What it computed; how long it took is left out."""
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("rounds")]
