# SPDX-License-Identifier: Apache-2.0
"""What `detshare run` announced, and which announcement a process belongs to. Kept in a file over restarts."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from detshare.ctl.core import procfs
from detshare.ctl.core.driver import ProcessId
from detshare.runtime.reflexes import RANKS, Desired, Override

_ANCESTORS: Final = 32
"""parents that are looked at to find the `detshare run` a process belongs to"""


@dataclass(frozen=True, slots=True)
class Run:
    """What `detshare run` asked for before it became the program."""

    pid: int
    start: int
    uid: int
    tenant: str
    command: str
    key: str
    """of its profile"""
    observed: bool
    """it runs in the temporal lane and is only counted"""
    desired: Desired

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


class Runs:
    """The announcements, the reserve and what was set for classes, in one file. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: dict[ProcessId, Run] = {}
        self.reserve: int | None = None
        """SMs kept for class high"""
        self.overrides: dict[str, Override] = {}
        """what was set for whole classes"""

    def load(self) -> str:
        """Read the file; what is wrong with it, or empty."""
        try:
            data = json.loads(self._path.read_bytes())
            self.reserve = data["reserve"] if isinstance(data["reserve"], int) else None
            self.overrides = {name: Override(**entry) for name, entry in data["overrides"].items() if name in RANKS}
            for entry in data["runs"]:
                run = Run(**{**entry, "desired": Desired(**entry["desired"])})
                self._runs[run.process] = run
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return f"{self._path} cannot be read ({error}): reserve and runs that start now are forgotten"
        return ""

    def save(self) -> None:
        """Write the file. OSError: what is in memory holds until the daemon ends."""
        if self.reserve is None and not self.overrides and not self._runs:
            self._path.unlink(missing_ok=True)
            return
        overrides = {name: asdict(override) for name, override in self.overrides.items()}
        data = {"reserve": self.reserve, "overrides": overrides, "runs": [asdict(run) for run in self._runs.values()]}
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(data) + "\n", encoding="utf-8")
        draft.replace(self._path)

    def add(self, run: Run) -> None:
        """Remember a run; `save` it too."""
        self._runs[run.process] = run

    def find(self, pid: int, uid: int, tenant: str) -> Run | None:
        """The run that a process belongs to: its own, an ancestor's, or the latest of its user under this name."""
        at = pid
        for _ in range(_ANCESTORS):
            start = procfs.start_time(at)
            if start is None:
                break
            if (found := self._runs.get(ProcessId(at, start))) is not None:
                return found
            at = _parent(at)
            if at <= 1:
                break
        named = [run for run in self._runs.values() if tenant and run.tenant == tenant and run.uid == uid]
        return named[-1] if named else None

    def living(self) -> list[Run]:
        """Those whose process has not ended."""
        return [run for run in self._runs.values() if procfs.start_time(run.pid) == run.start]

    def prune(self, names: Container[str]) -> bool:
        """Forget runs that ended and whose name no living tenant bears. Whether there were some."""
        ended = [run for run in self._runs.values() if procfs.start_time(run.pid) != run.start]
        gone = [run.process for run in ended if run.tenant not in names]
        for process in gone:
            del self._runs[process]
        return bool(gone)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def command_line(pid: int) -> list[str]:
    """The words of a process's command; its number in brackets where there are none."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode("utf-8", "replace")
    except OSError:
        words = ""
    return words.split("\0") if words else [f"[{pid}]"]
