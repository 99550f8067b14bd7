# SPDX-License-Identifier: Apache-2.0
"""Asking the child process, and what it answered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detshare.ctl.checkpoint.calls import State
from detshare.ctl.core.driver import ProcessId

__all__ = ["Answer", "ask"]

LEAST_S: Final = 60.0
SLOWEST: Final = 0.25e9
"""bytes a second; 8 GiB took the driver 5.0 s one way (measured on an H100), a fifth of that speed is no hang"""


@dataclass(frozen=True, slots=True)
class Answer:
    """`state` None: nobody could say; `left`: nothing was done to it."""

    state: State | None
    error: str
    seconds: float
    left: bool = False


def ask(
    job: str, lock: Path, process: ProcessId, *, lock_ms: int = 0, size: int = 0, pairs: Sequence[str] = ()
) -> Answer:
    """Do a job of child.JOBS on a process with `size` bytes of GPU memory. Takes seconds; always answers."""
    module = f"{__package__}.child"
    # -P and /: no module is taken from a folder that somebody else may write to
    command = [sys.executable, "-P", "-m", module, job, str(lock), *map(str, process), str(lock_ms), *pairs]
    limit = LEAST_S + lock_ms / 1000 + (3 if pairs else 1) * size / SLOWEST  # out, in, and in again where it was
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # what ends the daemon does not end it half-way
        cwd="/",
    )
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return Answer(None, f"the driver did not answer within {limit:.0f} s; see: dmesg | grep NVRM", limit)
    try:
        said = json.loads(out)
        state = State(said["state"]) if said["state"] else None
        return Answer(state, str(said["error"]), float(said["seconds"]), bool(said.get("left")))
    except (ValueError, KeyError, TypeError):
        last = err.decode(errors="replace").strip().rpartition("\n")[2][:300]
        return Answer(None, f"the process that asks the driver ended with {child.returncode}: {last}", 0.0)
