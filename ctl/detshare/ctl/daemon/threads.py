# SPDX-License-Identifier: Apache-2.0
"""The CPU time of this process's threads."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Final

__all__ = ["cpu_seconds"]

_OF_POOL: Final = re.compile(r"_\d+$")
"""what concurrent.futures puts behind the name of a pool"""
_USER_FIELD, _SYSTEM_FIELD = 11, 12  # fields 14 and 15 of stat (proc(5)), counted from the state


def cpu_seconds() -> dict[str, float]:
    """Name of a living thread, or of a pool's together -> seconds of CPU time so far; "main" is the first one.

    Not those that are no Python's. A name whose thread ended is gone, and begins at 0 where another has it.
    """
    found: dict[str, float] = {}
    for thread in threading.enumerate():
        name = "main" if thread is threading.main_thread() else _OF_POOL.sub("", thread.name)
        found[name] = found.get(name, 0.0) + _of(thread.native_id)
    return found


def _of(native: int | None) -> float:
    """0.0 where it has ended, or has not begun."""
    try:
        line = Path(f"/proc/self/task/{native}/stat").read_bytes()
    except OSError:
        return 0.0
    fields = line.rpartition(b")")[2].split()
    return (int(fields[_USER_FIELD]) + int(fields[_SYSTEM_FIELD])) / os.sysconf("SC_CLK_TCK")
