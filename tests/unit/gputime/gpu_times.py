# SPDX-License-Identifier: Apache-2.0
"""Made-up GPU time: three programs that take turns beside one that comes in bursts."""

from __future__ import annotations

from dataclasses import replace

from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.gputime import GpuTime, Mode, Pattern, Place, Schedule, Standing
from detshare.ctl.core.snapshot import Kind, Program, Snapshot, State, Tsg

GPU = "GPU-710ea6b1-2c2f-4f9e-8a3a-0123456789ab"
TIME = GpuTime(GPU, 5.0, share=0.3, useful=0.27, switches_s=50.0, run_us=1730.0, gap_us=18_300.0,
               history=tuple(number % 10 / 10 for number in range(50)))  # fmt: skip
SCHEDULE = Schedule(GPU, Mode.TURNS, Pattern.BURSTS, holder="train", next="eval", left_s=0.04, slice_us=50,
                    gap_us=18_300.0, why="gaps of 18.3 ms are 61 switches long")  # fmt: skip


def program(pid: int, standing: Standing | None = None, **more: object) -> Program:
    tsg = Tsg(GPU, 3, 0xC1D00001, 0x5C000015, 1, 2, 3, Kind.COMPUTE, "GR0", (1,), (), 50)
    places = () if standing is None else (Place(GPU, str(pid), standing, 0.14 if standing is Standing.WAITS else None),)
    made = Program(ProcessId(pid, 100), f"python3 job{pid}.py", "ann", "", State.RUNNING, (tsg,), (GPU,), "low",
                   gpu_share=0.9, gpu_time=(TIME,), places=places)  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def snapshot(*programs: Program, schedules: tuple[Schedule, ...] = (SCHEDULE,)) -> Snapshot:
    gpus = (Gpu(GPU, 0, "NVIDIA H200", "0", 140 << 30),)
    return Snapshot("root", "gpu", "580.159.04", 1.0, 0.004, gpus, programs, schedules=schedules)


STALLED = replace(TIME, share=0.0, useful=0.0, history=(0.0,) * 50, stalled_s=3.2)
