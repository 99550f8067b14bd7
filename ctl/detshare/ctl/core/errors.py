# SPDX-License-Identifier: Apache-2.0
"""Errors that a person can act on: what was asked, what stopped it, what to do next."""

from __future__ import annotations

from typing import Any


class ControlError(Exception):
    """A request that was not done. `usage`: it could not be meant (exit code 2), as opposed to a failure (1)."""

    def __init__(self, asked: str, stopped: str, next_step: str, *, usage: bool = False) -> None:
        super().__init__(asked, stopped, next_step)
        self.asked = asked
        self.stopped = stopped
        self.next_step = next_step
        self.usage = usage

    @property
    def next(self) -> str:
        """What to do next."""
        return self.next_step

    def __str__(self) -> str:
        return f"{self.asked}: {self.stopped}\nnext: {self.next_step}"

    def to_json(self) -> dict[str, Any]:
        """The body of an error answer of the API, and what `detshare-ctl --json` prints."""
        return {"error": {"asked": self.asked, "stopped": self.stopped, "next": self.next_step}}


class Stopping(ControlError, RuntimeError):
    """The daemon has put everything back, or is about to: it touches no program any more."""

    def __init__(self) -> None:
        super().__init__("work with programs", "detshared is stopping", "start it again")


class ClientError(ControlError):
    """What the daemon answered instead of doing it, or why it could not be reached. `status` 0: no answer."""

    def __init__(
        self, asked: str, stopped: str, next_step: str, *, usage: bool = False, status: int = 0
    ) -> None:
        super().__init__(asked, stopped, next_step, usage=usage)
        self.status = status
