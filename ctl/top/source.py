# SPDX-License-Identifier: Apache-2.0
"""Where snapshots come from and verbs go to: the daemon, or read-only looks of our own where none answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from detshare.ctl.client import Client
from detshare.ctl.errors import ControlError


class SourceError(Exception):
    """No snapshot, or no change; the message is for the person at the screen."""


class Source(Protocol):
    """Blocking; called from one thread. Methods raise SourceError."""

    @property
    def can_act(self) -> bool:
        """A daemon answered at the last look."""
        ...

    def look(self) -> dict[str, Any]: ...

    def act(self, verb: str, who: str, args: dict[str, Any]) -> dict[str, Any]: ...


class Machine:
    """The daemon of a run directory while one lives, else our own looks. Follows one that comes or goes."""

    def __init__(self, run_dir: Path | None) -> None:
        self._client = Client(run_dir)
        self._can_act = False

    @property
    def can_act(self) -> bool:
        return self._can_act

    def look(self) -> dict[str, Any]:
        self._can_act = False
        try:
            if self._client.alive():
                found = self._client.programs()
                self._can_act = True
                return found
            # it brings the driver tables and NVML with it, which a screen on the daemon does not need
            from detshare.ctl.oneshot import AUTO, OneShot

            asked = "list programs without a daemon"
            with OneShot.open(AUTO, self._client.run_dir, asked, lock=False) as shot:
                return shot.programs()
        except ControlError as error:
            raise SourceError(str(error)) from error

    def act(self, verb: str, who: str, args: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._client.verb(verb, who, **args)
        except ControlError as error:
            raise SourceError(f"{error.stopped}; next: {error.next_step}") from error
