# SPDX-License-Identifier: Apache-2.0
"""Whether one process may speak for another: it made it, or both are of one user and in one control group."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["may_speak_for"]

_MOST_PARENTS: Final = 32


def may_speak_for(speaker: int, about: int) -> bool:
    """Whether `speaker` is `about`, one of its ancestors, or of the same user in the same control group.

    A control group is that of a container, a service or a session; the root of the hierarchy is none.
    """
    try:
        if os.stat(f"/proc/{speaker}").st_uid != os.stat(f"/proc/{about}").st_uid:
            return False
        return speaker in _ancestors(about) or _group(speaker) == _group(about) != ""
    except (OSError, ValueError, IndexError):  # one of them ended
        return False


def _ancestors(pid: int) -> list[int]:
    found = [pid]
    while pid > 1 and len(found) < _MOST_PARENTS:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def _group(pid: int) -> str:
    """Of the version 2 hierarchy, else of the first of the others; empty for the root."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    named = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines}
    path = named.get("") or next(iter(named.values()), "")
    return "" if path == "/" else path
