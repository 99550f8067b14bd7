# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, by what their launchers put into the environment of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from detshare.ctl.core import procfs

__all__ = ["SIZES", "environment", "of", "told"]

_MOST_BYTES: Final = 1 << 20
_WORLDS: Final = (
    ("WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),  # torchrun and what follows its names
    ("OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("PMI_SIZE", ("PMI_ID_JOB", "PMI_JOBID")),
    ("SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
"""variable with the number of ranks, variables that tell one job from another"""
SIZES: Final = tuple(size for size, _ in _WORLDS)


def environment(pid: int, proc: Path = Path("/proc")) -> dict[str, str]:
    """What a process was started with; empty where it ended or may not be read."""
    try:
        with (proc / str(pid) / "environ").open("rb") as stream:
            text = stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def told(variables: Mapping[str, str]) -> str:
    """What its launcher calls the job; empty for what is no rank, or the only one."""
    for size, names in _WORLDS:
        ranks = variables.get(size, "")
        known = [variables[name] for name in names if variables.get(name)]
        if ranks.isdecimal() and int(ranks) > 1 and known:
            return ":".join(known)
    return ""


def of(pid: int, proc: Path = Path("/proc")) -> str:
    """The job of a process: its user, its container and what the launcher calls it. Empty: it is no rank of one.

    A rank says this of itself, so it can name only jobs of its own user in its own container.
    """
    name = told(environment(pid, proc))
    try:
        own = proc / str(pid)
        return f"{own.stat().st_uid}:{procfs.container_id((own / 'cgroup').read_text())}:{name}" if name else ""
    except OSError:
        return ""
