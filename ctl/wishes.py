# SPDX-License-Identifier: Apache-2.0
"""What operators asked for, per process, kept over restarts of the daemon.

Pauses are not kept: a program must never stay stopped because somebody restarted something.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from detshare.ctl import classes
from detshare.ctl.backends.base import BadRequest
from detshare.ctl.rm.driver import ProcessId
from detshare.ctl.snapshot import Level

NAME = "wishes.json"


@dataclass(frozen=True, slots=True)
class Wish:
    """One of class, weight or raw slice; None everywhere means only pausing was asked for."""

    klass: str | None = None
    weight: int | None = None
    tenant: str = ""
    """programs of one tenant share its weight; empty: the process is its own tenant"""
    slice_us: int | None = None
    level: Level | None = None
    paused: bool = False

    @property
    def steers(self) -> bool:
        return self.klass is not None or self.weight is not None or self.slice_us is not None


class Wishes:
    """The wishes of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / NAME
        self._by_process: dict[ProcessId, Wish] = {}
        self._load()

    def _load(self) -> None:
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return
        for entry in entries if isinstance(entries, list) else ():
            try:
                process = ProcessId(int(entry.pop("pid")), int(entry.pop("start")))
                level = entry.pop("level", None)
                wish = Wish(**entry, level=None if level is None else Level(level))
                if wish.klass is not None:
                    classes.setting(wish.klass)
                self._by_process[process] = wish
            except (AttributeError, KeyError, TypeError, ValueError, BadRequest):
                continue  # written by another version: better forgotten than misread

    def _save(self) -> None:
        entries = [
            {"pid": p.pid, "start": p.start, **asdict(replace(w, paused=False))}
            for p, w in self._by_process.items()
            if w.steers
        ]
        if not entries:
            self._path.unlink(missing_ok=True)
            return
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
        draft.chmod(0o600)
        draft.replace(self._path)

    def get(self, process: ProcessId) -> Wish:
        return self._by_process.get(process, Wish())

    def steer(self, process: ProcessId, wish: Wish) -> None:
        """Replace class, weight or slice; whether it is paused stays."""
        self._by_process[process] = replace(wish, paused=self.get(process).paused)
        self._save()

    def pause(self, process: ProcessId, paused: bool) -> None:
        self._by_process[process] = replace(self.get(process), paused=paused)

    def drop(self, process: ProcessId) -> None:
        if self._by_process.pop(process, None) is not None:
            self._save()

    def processes(self) -> list[ProcessId]:
        return list(self._by_process)

    def tenant(self, name: str) -> list[ProcessId]:
        """The processes that share one tenant's weight."""
        return [p for p, w in self._by_process.items() if name and w.tenant == name]
