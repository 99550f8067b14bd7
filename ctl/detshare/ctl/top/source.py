# SPDX-License-Identifier: Apache-2.0
"""Where snapshots come from and verbs go to: the daemon, or read-only looks of our own where none answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from detshare.ctl.client import Client
from detshare.ctl.core import words
from detshare.ctl.core.errors import ControlError

_POLICY_SECONDS: Final = 2.0
"""between questions what was decided: the daemon reads its log for the answer"""
_SINCE_S: Final = 300.0
_DECISIONS: Final = 8


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

    def __init__(
        self, run_dir: Path | None, alone: Callable[[Path], dict[str, Any]], ticker: bool = True
    ) -> None:
        """`alone`: looks where no daemon answers, ControlError where it cannot. `ticker`: ask for decisions too."""
        self._alone = alone
        self._ticker = ticker
        self._client = Client(run_dir)
        self._can_act = False
        self._policy: dict[str, Any] | None = None
        self._decisions: list[dict[str, Any]] = []
        self._policy_due = 0.0

    @property
    def can_act(self) -> bool:
        return self._can_act

    def look(self) -> dict[str, Any]:
        self._can_act = False
        try:
            if self._client.alive():
                found = self._client.programs()
                self._can_act = True
                return self._decided(found)
            return self._alone(self._client.run_dir)
        except ControlError as error:
            raise SourceError(str(error)) from error

    def _decided(self, found: dict[str, Any]) -> dict[str, Any]:
        """The same with the newest decisions and, now and then, the policy that makes them."""
        if not self._ticker:
            return found
        try:
            if time.monotonic() >= self._policy_due:
                self._policy_due = time.monotonic() + _POLICY_SECONDS
                self._decisions = self._client.decisions(_SINCE_S, _DECISIONS)["decisions"]
                self._policy = words.policies(self._client.policy()["policy"])
        except (ControlError, KeyError):
            return found  # a daemon without a policy shows its programs all the same
        return {**found, "decisions": self._decisions, "policy": self._policy}

    def _set_policy(self, name: str, params: dict[str, str]) -> dict[str, Any]:
        self._client.policy_set(name, params)
        self._policy_due = 0.0
        return {"changed": [{"pid": 0, "tsgs": [], "note": f"policy {name} decides now"}], "skipped": []}

    def act(self, verb: str, who: str, args: dict[str, Any]) -> dict[str, Any]:
        try:
            if verb == "policy-set":
                return self._set_policy(args["name"], args["params"])
            return self._client.verb(verb, who, **args)
        except ControlError as error:
            raise SourceError(f"{error.stopped}; next: {error.next_step}") from error
