# SPDX-License-Identifier: Apache-2.0
"""Policy pages of living programs, written as the daemon writes them: for more changes a second than it takes requests.

The daemon writes a page when a desired state, a class or the reserve changes, so none of these may change meanwhile.
"""

from __future__ import annotations

import contextlib
from types import TracebackType

from detshare.runtime.board import Policy, map_file
from detshare.runtime.directory import default_path
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError

__all__ = ["Pages"]


class Pages:
    """Use as a context; the programs' tables of tiers were filled by set-sm before."""

    def __init__(self, session: Session) -> None:
        self._folder = default_path(session.steer.run_dir)
        self._stack = contextlib.ExitStack()
        self._policies: dict[int, Policy] = {}

    def __enter__(self) -> Pages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for policy in self._policies.values():
            policy.close()
        self._stack.close()

    def _policy(self, pid: int) -> Policy:
        if pid not in self._policies:
            found = list(self._folder.glob(f"{pid}-*.policy"))
            if len(found) != 1:
                raise SteerError(f"{len(found)} policy pages of {pid} in {self._folder}, 1 expected")
            self._policies[pid] = Policy(self._stack.enter_context(map_file(found[0], write=True)))
        return self._policies[pid]

    def tiers(self, pid: int) -> int:
        """How many sets of SMs its table has, all SMs among them."""
        return len(self._policy(pid).read().tiers)

    def use(self, pid: int, tier: int) -> None:
        """One of these for all that it launches from now on."""
        self._policy(pid).write(tier_idle=tier, tier_busy=tier)
