# SPDX-License-Identifier: Apache-2.0
"""Which processes are one tenant: those of a container, a service, or a job of several ranks, unless told otherwise.

Told otherwise means DETSHARE_TENANT=NAME in a program's environment when it starts, or a tenant by name in what was
asked for it (`set-priority --tenant`). A name counts before everything else. What a program says of itself is a name
among those of its container, or else of its user: nobody has turns with another's tenant by saying its name. Only
root's names outside of containers are the names that are asked for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from detshare.ctl.core import jobs
from detshare.ctl.core.driver import Opener, ProcessId

_MOST_KNOWN: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,62}")
_SERVICE: Final = re.compile(r"/system\.slice/(?:.*/)?([^/]+\.service)$")
_BATCH: Final = re.compile(r"/(job_[0-9]+)(?:/|$)")
"""Slurm's cgroup of a job"""


class Tenancy:
    """Tenants of processes; each environment is read once. Not for two threads at once."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[ProcessId, str] = {}

    def of(self, opener: Opener, named: str = "") -> str:
        """The tenant of a process. `named`: what was asked for it, if anything."""
        if named:
            return named
        if opener.id not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[opener.id] = self._told(opener)
        return self._known[opener.id] or self._seen(opener)

    def _told(self, opener: Opener) -> str:
        """By what is said of it when it starts; empty where nothing is."""
        environment = jobs.environment(opener.id.pid, self._proc)
        name = environment.get("DETSHARE_TENANT", "")
        if _NAME.fullmatch(name):
            owner = f"container {opener.container[:12]}" if opener.container else opener.user
            return name if owner == "root" else f"{owner}/{name}"
        if opener.container:
            return f"container {opener.container[:12]}"
        if job := jobs.named(opener.id.pid, environment, self._proc):
            return f"job {opener.user}:{job}"
        return ""

    @staticmethod
    def _seen(opener: Opener) -> str:
        """By what it shares with others, which may be found later, or by where it runs."""
        if job := jobs.found(opener.id.pid):
            return f"job {opener.user}:{job}"
        for pattern in (_BATCH, _SERVICE):
            if found := pattern.search(opener.cgroup):
                return f"cgroup {found[1]}"
        return str(opener.id.pid)
