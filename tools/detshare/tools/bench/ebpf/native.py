# SPDX-License-Identifier: Apache-2.0
"""The programs of native/: built where a compiler is, else as they came. $DETSHARE_OBSERVED names their folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from detshare.tools.bench.ebpf.part import PartError

__all__ = ["build", "path"]

_SOURCES = Path(__file__).resolve().parent / "programs"
_FOLDER = Path(__file__).resolve().parents[5] / "build" / "observed"


def _folder() -> Path:
    return Path(os.environ.get("DETSHARE_OBSERVED") or _FOLDER)


def build() -> None:
    """All of them, where make and a compiler are here. PartError with the compiler's words."""
    if shutil.which("make") is None or (shutil.which("cc") or shutil.which("gcc")) is None:
        return
    compiler = "cc" if shutil.which("cc") else "gcc"
    command = ["make", "-s", "-C", str(_SOURCES), f"OUT={_folder()}", f"CC={compiler}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not (_folder() / "recorder.so").exists():
        raise PartError(f"build {_SOURCES}: {(done.stderr or done.stdout).strip()[-600:]}")


def path(name: str) -> str:
    """Of one of the programs; PartError where it is not there."""
    found = _folder() / name
    if not found.exists():
        raise PartError(f"run {name}: there is no {found}; next: make -C {_SOURCES}, where a compiler is")
    return str(found)
