# SPDX-License-Identifier: Apache-2.0
"""Whose share NVML has to tell, beside the context-switch log: it takes milliseconds for each GPU that is asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.snapshot import Program, State

_OWN: Final = frozenset({State.RUNNING, State.PAUSED, State.NO_CONTEXT})
"""what it runs is in the log under its own PID"""

Ask = Callable[[frozenset[str]], Mapping[tuple[int, str], float]]
"""GPUs (UUIDs) -> (PID, GPU) -> share by NVML, of these GPUs at least"""


class Unlogged:
    """NVML is asked for the GPUs of a program

    - that the log does not know on one of its GPUs, or that has one alone: of that NVML knows more;
    - but once only where the log is sure that it has nothing: NVML says then that it had nothing, until it has.
    """

    def __init__(self) -> None:
        self._silent: dict[ProcessId, float | None] = {}
        """programs that have nothing, and what NVML said: 0, or that it does not know them"""

    def fill(
        self, found: Iterable[Program], times: Mapping[str, Mapping[int, GpuTime]], sure: Iterable[str], ask: Ask
    ) -> list[Program]:
        """The programs with NVML's share where it is used. `times`: GPU -> PID -> what the log says; `sure`: GPUs
        whose log tells of everybody who runs."""
        found = list(found)
        pids = {program.id.pid for program in found}
        # where the log has a PID that nobody has, such as one of another PID namespace, it may be any program's
        known = {gpu for gpu in sure if times.get(gpu, {}).keys() <= pids}
        silent = {p.id for p in found if p.state in _OWN and known.issuperset(p.gpus) and not _times(p, times)}
        self._silent = {process: share for process, share in self._silent.items() if process in silent}
        asked = [p for p in found if p.id not in self._silent and not _told(p, times)]
        shares = ask(frozenset(gpu for program in asked for gpu in program.gpus))
        filled = {program.id: _with(program, shares) for program in asked}
        for process in silent & filled.keys():
            if not filled[process].gpu_share:
                self._silent[process] = filled[process].gpu_share
        return [filled.get(p.id) or _with(p, shares, self._silent.get(p.id)) for p in found]


def _times(program: Program, times: Mapping[str, Mapping[int, GpuTime]]) -> dict[str, GpuTime]:
    pid = program.id.pid
    return {gpu: by_pid[pid] for gpu, by_pid in times.items() if pid in by_pid}


def _told(program: Program, times: Mapping[str, Mapping[int, GpuTime]]) -> bool:
    """Whether the log tells all of a program."""
    mine = _times(program, times)
    return bool(mine) and mine.keys() >= set(program.gpus) and not any(time.alone for time in mine.values())


def _with(program: Program, shares: Mapping[tuple[int, str], float], otherwise: float | None = None) -> Program:
    mine = [shares[program.id.pid, gpu] for gpu in program.gpus if (program.id.pid, gpu) in shares]
    share = max(mine, default=program.gpu_share if program.gpu_share is not None else otherwise)
    return program if share == program.gpu_share else replace(program, gpu_share=share)
