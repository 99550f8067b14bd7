# SPDX-License-Identifier: Apache-2.0
"""detshared on the model backend with more programs, for the page's tests and pictures.

Example: python -m detshare.tools.browser.stage --programs 1000 --run-dir /tmp/stage --page-listen 127.0.0.1:9836

Besides --programs it takes what detshared takes. The first eight are programs of the model. Others are scenery: looks
list them, and nothing can be asked of them, for to adopt a thousand takes the model minutes. Programs may have their
requests' times reported by anybody, as those of this machine may by their own.
"""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from detshare.ctl.backends.model import live, scenario
from detshare.ctl.backends.model.workload import Background, Latency
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.gputime import SLOTS, GpuTime
from detshare.ctl.core.procfs import start_time
from detshare.ctl.core.snapshot import Kind, Program, Snapshot, State, Tsg
from detshare.ctl.daemon import daemon
from detshare.ctl.daemon.detshared import main as detshared
from detshare.ctl.daemon.requests import Table
from detshare.ctl.oneshot import Built

__all__ = ["ODD", "main"]

ODD: Final = "<img src=x onerror=document.title='taken'> \u202e&amp; \"'`"
"""part of a command line that must never become markup"""
_COMMANDS: Final = (
    ("ann", "python3 train.py --config resnet50.yaml --epochs 90"),
    ("bob", "vllm serve meta-llama/Llama-3.1-8B --port 8001"),
    ("eve", f"python3 odd.py {ODD}"),
    ("ann", "python3 -m ipykernel_launcher -f notebook.json"),
    ("dan", "blender --background scene.blend --render-anim"),
)
_LIVING: Final = 8
_SCENERY: Final = 500_000
"""PIDs of scenery count from here"""


class Stage(live.LiveModel):
    """The model's three programs, and more that have one channel group with one channel each."""

    small: Final = frozenset((0x2, 0x3, 0x9, 0xA, 0x15, 0x16, 0x1C, 0x1D, 0x1E))
    """objects of the recorded context that they have"""

    def __init__(self, programs: int) -> None:
        super().__init__()
        rows = [row for row in scenario.recorded("tree-cuda.json") if row[0] in self.small]
        gpu = self.gpu_models[0]
        for number in range(3, min(programs, _LIVING)):
            user, command = _COMMANDS[number % len(_COMMANDS)]
            process = self.machine.spawn(command)
            _, file, client = scenario.new_client(self, process)
            for row in rows:
                scenario.alloc(self, process, file, client, row, scenario.CUDA_BASE, 0)
            process.open(f"/dev/nvidia{gpu.info.minor}")
            process.memory[gpu.info.uuid] = (1 + number) << 30
            process.user = user
            if number == 4:
                process.container = f"{number:x}" * 64
                self.machine.start_work(process, gpu, Background((100, 200), seed=21))
            if number == 6:
                self.machine.start_work(process, gpu, Latency(900, 40_000, seed=20))


class Backend(RootBackend):
    """Looks list scenery besides."""

    scenery = 0

    def look(self, *, enforce: bool = True) -> Snapshot:
        seen = super().look(enforce=enforce)
        more = tuple(_scenery(number, seen.taken, seen.gpus[0]) for number in range(self.scenery))
        return replace(seen, programs=(*seen.programs, *more))

    def stirs(self) -> bool:
        return self.scenery > 0 or super().stirs()

    def alive(self, process: ProcessId) -> bool:
        return process.pid >= _SCENERY or super().alive(process)


def _scenery(number: int, now: float, gpu: Gpu) -> Program:
    user, command = _COMMANDS[number % len(_COMMANDS)]
    pid = _SCENERY + number
    tsg = Tsg(gpu.uuid, 5, 0xC1D00000, 0x5C000015, 1, 2, -1, Kind.COMPUTE, "GR0", (0x5C00001C,), (), 2048)
    times: tuple[GpuTime, ...] = ()
    if number % 10 == 0:  # a tenth of them works a little, never the same
        share = 0.002 + 0.002 * math.sin(now + number)
        times = (GpuTime(gpu.uuid, 5.0, share, share, 1.0, 50.0, 50.0, (share,) * SLOTS),)
    return Program(
        ProcessId(pid, pid),
        f"{command} --worker {number}",
        user,
        f"{number:064x}" if number % 7 == 0 else "",
        State.RUNNING,
        (tsg,),
        (gpu.uuid,),
        memory_bytes=(1 + number % 12) << 20,
        gpu_time=times,
    )


def _start(model: Stage, pid: int) -> int | None:
    """When a program began; those of the model are no processes here."""
    process = model.machine.processes.get(pid)
    return process.id.start if process is not None else start_time(pid)


def main() -> None:
    """Runs in the foreground, as detshared does."""
    programs, words = 3, sys.argv[1:]
    if "--programs" in words:
        at = words.index("--programs")
        programs = int(words[at + 1])
        del words[at : at + 2]
    model = Stage(programs)

    def build(name: str, run_dir: Path) -> Built:
        backend = Backend(model, run_dir, name="model", rotates=True)
        backend.scenery = max(programs - _LIVING, 0)
        return Built(backend)

    staged: dict[str, Any] = {
        "build_backend": build,
        "Table": functools.partial(Table, start=functools.partial(_start, model), may_speak=lambda a, b: True),
    }
    for name, value in staged.items():
        setattr(daemon, name, value)
    detshared(["--backend", "model", *words], prog_name="stage")


if __name__ == "__main__":
    main()
