# SPDX-License-Identifier: Apache-2.0
"""What a program pays for a launch, an allocation, a copy and its context."""

from __future__ import annotations

import statistics

from detshare.tools.bench.field.probes.trial import START, Probe, Trial
from detshare.tools.bench.mix.figures import Figure

__all__ = ["Calls", "Contexts"]

IDS = {
    "launch and wait": ("OH-001",),
    "launch": ("OH-008", "SCHED-002"),
    "cuDeviceGetCount": ("OH-005",),
    "allocate 1 MiB, 8 threads, p95": ("OH-006",),
    "copy to the GPU, pinned": ("PCIE-001",),
    "copy from the GPU, pinned": ("PCIE-002",),
    "copy to the GPU, not pinned": ("PCIE-004",),
}
SIZED = {"allocate": ("OH-002",), "free": ("OH-003",)}
LARGE = {"allocate 256 MiB": ("LLM-007",), "allocate 1 KiB": ("LLM-002",)}


class Calls(Probe):
    """Medians of single calls of a program that has the GPU for itself."""

    name, seconds = "calls", 12.0
    about = "launch, allocation, free and copy, nobody beside it"

    def __init__(self, times: int = 1000) -> None:
        self._times = times

    def measure(self, trial: Trial) -> list[Figure]:
        worker = trial.start("calls", ["calls", "--times", self._times], server=True)
        seen = trial.go(worker, "costs")["seen"]
        found = []
        for what, value in seen.items():
            ids = IDS.get(what, SIZED.get(what.split()[0], ())) + LARGE.get(what, ())
            found.append(Figure(what, float(value), "GB/s" if what.startswith("copy") else "us", ids))
        return found


class Contexts(Probe):
    """From cuInit to the first allocation, each time in a fresh process."""

    name, seconds = "contexts", 12.0
    about = "a context in a fresh process"

    def __init__(self, times: int = 7) -> None:
        self._times = times

    def measure(self, trial: Trial) -> list[Figure]:
        took = []
        for number in range(self._times):
            program = trial.fresh(f"context {number}", ["context"], server=True)
            took.append(float(program.wait_for("context", START)["ms"]))
            trial.session.drop(program)
        first = Figure("context, median", statistics.median(took), "ms", ("OH-004",))
        return [first, Figure("context, longest", max(took), "ms", ("OH-004",))]
