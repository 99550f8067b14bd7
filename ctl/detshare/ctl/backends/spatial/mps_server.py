# SPDX-License-Identifier: Apache-2.0
"""The MPS server of the spatial lane as a program of the other lane: background where all its programs are.

To backend root the server is one program, and one that nobody manages goes before all background: beside a program of
class `low` in the spatial lane another one of class `low` would have its floor and no more. What a person or a policy
sets for the server itself stands until the classes of its programs change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

from detshare.ctl.core.backend import Backend
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Program, State

BELOW: Final = ("low", "idle")
"""classes that are background whoever else is there, the higher one first"""


class MpsServer:
    """`temporal`: the other lane's backend. `pids`: those of the servers that the spatial lane has."""

    def __init__(self, temporal: Backend, pids: Callable[[], Collection[int]]) -> None:
        self._temporal, self._pids = temporal, pids
        self._given: dict[ProcessId, str | None] = {}

    def follow(self, seen: Iterable[Program], mine: Collection[Program]) -> None:
        """Give it the class of its programs, or none. `seen`: the other lane's look; `mine`: the spatial lane's."""
        pids, wanted = self._pids(), class_of(mine)
        servers = {p.id: p.klass for p in seen if p.state is State.MPS_SERVER and p.id.pid in pids}
        self._given = {server: klass for server, klass in self._given.items() if server in servers}
        for server, klass in servers.items():
            if server in self._given and self._given[server] == wanted:
                continue
            with suppress(OSError):  # nothing could be kept: the next look tries again
                if wanted is not None:
                    self._temporal.table["set-priority"](str(server.pid), wanted)
                elif klass in BELOW:  # an earlier daemon's, too
                    self._temporal.table["release"](str(server.pid))
                self._given[server] = wanted


def class_of(programs: Collection[Program]) -> str | None:
    """The highest class of programs that are all background; None where one of them is not, or there is none."""
    classes = {program.klass for program in programs}
    return next((klass for klass in BELOW if klass in classes), None) if classes <= set(BELOW) else None
