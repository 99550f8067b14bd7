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

from detshare.ctl.core.driver import Opener, ProcessId

_MOST_KNOWN: Final = 4096
_MOST_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,62}")
_SERVICE: Final = re.compile(r"/system\.slice/(?:.*/)?([^/]+\.service)$")
_BATCH: Final = re.compile(r"/(job_[0-9]+)(?:/|$)")
"""Slurm's cgroup of a job"""
_WORLDS: Final = (
    ("WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),  # torchrun and what follows its names
    ("OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("PMI_SIZE", ("PMI_ID_JOB", "PMI_JOBID")),
    ("SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
"""variable with the number of ranks, variables that tell one job from another"""


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
            self._known[opener.id] = self._find(opener)
        return self._known[opener.id]

    def _find(self, opener: Opener) -> str:
        environment = self._environment(opener.id.pid)
        name = environment.get("DETSHARE_TENANT", "")
        if _NAME.fullmatch(name):
            owner = f"container {opener.container[:12]}" if opener.container else opener.user
            return name if owner == "root" else f"{owner}/{name}"
        if opener.container:
            return f"container {opener.container[:12]}"
        if job := _job(environment, opener):
            return job
        for pattern in (_BATCH, _SERVICE):
            if found := pattern.search(opener.cgroup):
                return f"cgroup {found[1]}"
        return str(opener.id.pid)

    def _environment(self, pid: int) -> dict[str, str]:
        try:
            with (self._proc / str(pid) / "environ").open("rb") as stream:
                text = stream.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return {}
        return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def _job(environment: dict[str, str], opener: Opener) -> str:
    """The job of a rank, by its launcher's variables; empty where it is none, or the only rank."""
    for size, names in _WORLDS:
        ranks = environment.get(size, "")
        told = [environment[name] for name in names if environment.get(name)]
        if ranks.isdecimal() and int(ranks) > 1 and told:
            return f"job {opener.user}:" + ":".join(told)
    return ""
