# SPDX-License-Identifier: Apache-2.0
"""with detshare.tenant(priority="high", memory="20G"): this process as it is wished, for the length of a block."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from detshare.ctl.errors import ControlError
from detshare.ctl.library.client import Client
from detshare.ctl.library.results import Program, Result

__all__ = ["tenant"]


@contextlib.contextmanager
def tenant(
    priority: str | None = None,
    memory: str | int | None = None,
    weight: int | None = None,
    *,
    pid: int | None = None,
    run_dir: Path | str | None = None,
) -> Iterator[Client]:
    """Set class or weight, and a memory limit, of a process (this one, unless `pid` is given) for the block.

    At its end they are put back: to what stood before, else to how DetShare found the process. Raises detshare.Error
    where something cannot be done; then nothing stays changed. A process without a GPU context gets its class with its
    first one. Without the right to change others' classes a process may lower its own, and not raise it.
    """
    asked = "with detshare.tenant(...)"
    if priority is not None and weight is not None:
        raise ControlError(asked, "a program has a class or a weight, not both", "give one of them", usage=True)
    client, who = Client(run_dir), os.getpid() if pid is None else pid
    before = client.look().program(who)
    with contextlib.ExitStack() as undo:
        if priority is not None or weight is not None:
            undo.callback(_restore_class, client, who, before)
        if priority is not None:
            _require(client.set_priority(who, priority), who)
        if weight is not None:
            _require(client.set_weight(who, weight), who)
        if memory is not None:
            _require(client.set_memory(who, memory), who)
            undo.callback(client.set_memory, who, _own_limit(before))
        yield client


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
        client.release(who)


def _own_limit(before: Program | None) -> str | int:
    """The limit of the process itself; what stands for its cgroup or tenant is not ours to repeat."""
    limits = before.raw.get("limits", ()) if before is not None else ()
    return next((limit["limit"] for limit in limits if limit["kind"] == "pid" and limit["gpu"] is None), "max")
