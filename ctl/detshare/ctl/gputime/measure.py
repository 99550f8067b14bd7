# SPDX-License-Identifier: Apache-2.0
"""What the context-switch log says of programs, beside what NVML says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest

from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.snapshot import Check, Program
from detshare.ctl.gputime.sensor import Sensor


def measured(program: Program, times: Mapping[str, Mapping[int, GpuTime]]) -> Program:
    """The program with its GPU time. `times`: GPU UUID -> PID -> what the log says of the last seconds.

    Who has a GPU alone is not interrupted, and keeps it in the log while it rests: of that NVML knows more.
    """
    mine = tuple(by_pid[program.id.pid] for by_pid in times.values() if program.id.pid in by_pid)
    if program.gpu_share is not None:
        mine = tuple(_alone(t, program.gpu_share) if t.alone else t for t in mine)
    return replace(program, gpu_time=mine)


def of_groups(times: Mapping[int, GpuTime], heads: Mapping[int, int]) -> dict[int, GpuTime]:
    """The times of one GPU with those of MPS clients at their server: the log shows the server's work, which is that of
    all its clients, under the PID of one. `heads`: PID -> whose time it is; who is not there has its own.
    """
    found: dict[int, GpuTime] = {}
    for pid, time in times.items():
        head = heads.get(pid, pid)
        found[head] = _both(found[head], time) if head in found else time
    return found


def _both(one: GpuTime, other: GpuTime) -> GpuTime:
    """Of two that never have the GPU at once."""
    slots = zip_longest(reversed(one.history), reversed(other.history), fillvalue=0.0)
    longer = max(one, other, key=lambda time: time.share)
    return replace(
        longer,
        share=min(1.0, one.share + other.share),
        useful=min(1.0, one.useful + other.useful),
        switches_s=one.switches_s + other.switches_s,
        history=tuple(min(1.0, sum(each)) for each in slots)[::-1],
        stalled_s=min(one.stalled_s, other.stalled_s),
    )


def blind(refused: Mapping[str, str]) -> list[str]:
    """A warning for each GPU whose log cannot be read: UUID -> why."""
    return [f"the context-switch log of {gpu[:12]} is refused, share is NVML's: {why}" for gpu, why in refused.items()]


def check(sensor: Sensor) -> Check:
    """A line of doctor."""
    if refused := sensor.refused():
        return Check("sensor", None, "; ".join(blind(refused)), "run it as root, on branch 535 or later")
    return Check("sensor", True, f"reading the context-switch log takes {sensor.cpu_share:.2%} of a processor")


def _alone(time: GpuTime, share: float) -> GpuTime:
    return replace(time, share=share, useful=min(time.useful, share))
