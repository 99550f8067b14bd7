# SPDX-License-Identifier: Apache-2.0
"""with detshare.tenant(priority="high", memory="20G"): this process as it is asked, for the length of a block."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from detshare.ctl.core.errors import ClientError, ControlError
from detshare.ctl.library.client import Client
from detshare.ctl.library.reporter import Reporter
from detshare.ctl.library.results import Program, Result

__all__ = ["tenant"]

DENIED: Final = 403
"""the daemon's answer to who may not do that"""


class tenant(Client, contextlib.ContextDecorator):
    """Class or weight, and a memory limit, of a process (this one, unless `pid` is given) for a block of code.

    At its end they are put back: to what stood before, else to how DetShare found the process. Entering it raises
    detshare.Error where something cannot be done; then nothing stays changed. A process without a GPU context gets its
    class with its first one. Without the right to change others' classes a process may lower its own, and not raise it.

    `observe` tells the daemon how long requests take, within a block or without one.
    """

    def __init__(
        self,
        priority: str | None = None,
        memory: str | int | None = None,
        weight: int | None = None,
        *,
        pid: int | None = None,
        run_dir: Path | str | None = None,
    ) -> None:
        super().__init__(run_dir)
        self._priority, self._memory, self._weight = priority, memory, weight
        self._pid = pid
        self._reporter = Reporter(run_dir, pid)
        self._undo: list[contextlib.ExitStack] = []

    def observe(self, seconds: float) -> None:
        """A request took so long: for the policy (slo-aware holds a p99), `show` and /metrics.

        It never raises and never waits: reports go out together every 50 ms, and are lost where no daemon takes them;
        `unreported` says why. For another process (`pid`) it counts where this one made it, or both are of one user
        and in one control group.
        """
        self._reporter.observe(seconds)

    def flush(self) -> None:
        """Send now what was observed."""
        self._reporter.flush()

    @property
    def unreported(self) -> str:
        """Why the latest reports did not reach a daemon; empty where they did."""
        return self._reporter.reason

    @property
    def lost(self) -> int:
        """How many reports were lost so far."""
        return self._reporter.lost

    def __enter__(self) -> Self:
        if self._priority is not None and self._weight is not None:
            asked = "with detshare.tenant(...)"
            raise ControlError(asked, "a program has a class or a weight, not both", "give one of them", usage=True)
        who = os.getpid() if self._pid is None else self._pid
        with contextlib.ExitStack() as undo:
            if (self._priority, self._memory, self._weight) != (None, None, None):
                self._ask_for(who, undo)
            self._undo.append(undo.pop_all())
        return self

    def _ask_for(self, who: int, undo: contextlib.ExitStack) -> None:
        before = self.look().program(who)
        if self._priority is not None or self._weight is not None:
            undo.callback(_restore_class, self, who, before)
        if self._priority is not None:
            _require(self.set_priority(who, self._priority), who)
        if self._weight is not None:
            _require(self.set_weight(who, self._weight), who)
        if self._memory is not None:
            _require(self.set_memory(who, self._memory), who)
            undo.callback(self.set_memory, who, _own_limit(before))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reporter.flush()
        try:
            self._undo.pop().__exit__(kind, error, trace)
        except ControlError as refused:
            if error is None:
                raise
            error.add_note(f"and detshare.tenant could not put back what it changed: {refused}")


def _require(result: Result, who: int) -> None:
    if not result.changed:
        stopped = result.skipped.get(who) or "; ".join(result.skipped.values()) or "nothing was changed"
        raise ControlError(f"{result.verb} {who}", stopped, "see: detshare-ctl ps, detshare-ctl doctor")


def _restore_class(client: Client, who: int, before: Program | None) -> None:
    if before is not None and before.priority is not None:
        client.set_priority(who, before.priority)
    elif before is not None and before.weight is not None:
        client.set_weight(who, before.weight)
    else:
        try:
            client.release(who)
        except ClientError as error:
            if error.status != DENIED:
                raise
            client.set_priority(who, "normal")  # who may not do that may take back that he lowered it


def _own_limit(before: Program | None) -> str | int:
    """The limit of the process itself; what stands for its cgroup or tenant is not ours to repeat."""
    limits = before.raw.get("limits", ()) if before is not None else ()
    return next((limit["limit"] for limit in limits if limit["kind"] == "pid" and limit["gpu"] is None), "max")
