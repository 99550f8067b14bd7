# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, by what their launchers put into the environment of each, or what they share on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from detshare.ctl.core import procfs
from detshare.ctl.core.driver import ProcessId

__all__ = ["SIZES", "by_launcher", "environment", "found", "launcher", "learn", "named", "of", "told"]

_MOST_BYTES: Final = 1 << 20
_MOST_PARENTS: Final = 32
_WORLDS: Final = (
    ("WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),  # torchrun and what follows its names
    ("OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("PMI_SIZE", ("PMI_ID_JOB", "PMI_JOBID")),
    ("SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
"""variable with the number of ranks, variables that tell one job from another"""
SIZES: Final = tuple(size for size, _ in _WORLDS)
_HYDRA: Final = "PMI_FD"
"""MPICH's launcher gives each rank such a descriptor, and no name of the job: whoever has the same launcher is of it"""
_NAMELESS: Final = "of its launcher"


def environment(pid: int, proc: Path = Path("/proc")) -> dict[str, str]:
    """What a process was started with; empty where it ended or may not be read."""
    try:
        with (proc / str(pid) / "environ").open("rb") as stream:
            text = stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def told(variables: Mapping[str, str]) -> str:
    """What its launcher calls the job, or that it is of one without a name; empty for what is no rank, or the only
    one.
    """
    for size, names in _WORLDS:
        known = [variables[name] for name in names if variables.get(name)]
        if _several(variables, size) and known:
            return ":".join(known)
    return _NAMELESS if variables.get(_HYDRA) and _several(variables, "PMI_SIZE") else ""


def _several(variables: Mapping[str, str], size: str) -> bool:
    ranks = variables.get(size, "")
    return ranks.isdecimal() and int(ranks) > 1


def named(pid: int, variables: Mapping[str, str], proc: Path = Path("/proc")) -> str:
    """As `told`, for a process with these variables; a job without a name is called by its launcher."""
    name = told(variables)
    if name != _NAMELESS:
        return name
    above = launcher(pid, proc)
    return f"{above.pid}.{above.start}" if above is not None else ""


_FOUND: Final[dict[int, str]] = {}


def learn(ranks: Mapping[int, str]) -> None:
    """From now on these are all ranks whose launcher told nothing: PID -> job, as of `of`. Who looks at the GPUs says
    so after each look (backends/root/peers.py), or the daemon does.
    """
    for pid in _FOUND.keys() - ranks.keys():
        del _FOUND[pid]
    _FOUND.update(ranks)


def found(pid: int) -> str:
    """As `named`, of a rank that was found by what it shares; empty for others."""
    return _FOUND[pid].split(":", 2)[2] if pid in _FOUND else ""


def launcher(pid: int, proc: Path = Path("/proc")) -> ProcessId | None:
    """Who started the job of a rank: the nearest of its ancestors that is no rank of it, so no shell or wrapper that
    the rank was started through. None where that has ended, or one of them.
    """
    name = told(environment(pid, proc))
    for _ in range(_MOST_PARENTS):
        try:
            pid = int((proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        if pid <= 1:
            return None
        if told(environment(pid, proc)) != name:
            start = procfs.start_time(pid)
            return None if start is None else ProcessId(pid, start)
    return None


def of(pid: int, proc: Path = Path("/proc")) -> str:
    """The job of a process: its user, its container and its name. Empty: it is no rank of one that anybody knows of."""
    return by_launcher(pid, proc) or _FOUND.get(pid, "")


def by_launcher(pid: int, proc: Path = Path("/proc")) -> str:
    """As `of`, by what its launcher calls the job alone.

    A rank says this of itself, so it can name only jobs of its own user in its own container.
    """
    name = named(pid, environment(pid, proc), proc)
    try:
        own = proc / str(pid)
        return f"{own.stat().st_uid}:{procfs.container_id((own / 'cgroup').read_text())}:{name}" if name else ""
    except OSError:
        return ""
