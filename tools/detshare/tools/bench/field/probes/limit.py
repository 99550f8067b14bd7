# SPDX-License-Identifier: Apache-2.0
"""A memory limit: how much of it can be had, and how long a refusal takes."""

from __future__ import annotations

from typing import Any

from detshare.tools.bench.field.probes.trial import Probe, Trial
from detshare.tools.bench.mix.figures import Figure

__all__ = ["Limit"]

TWICE = 2.0
"""of the limit could be allocated: as much as the probe asks for, so there is no limit"""


class Limit(Probe):
    """2 MiB at a time up to the first refusal. Alone: what the driver itself takes to refuse."""

    name, seconds = "memory limit", 6.0
    about = "allocations up to a limit, and beyond"

    def __init__(self, mib: int = 4096) -> None:
        self._mib = mib

    def measure(self, trial: Trial) -> list[Figure]:
        if trial.alone:
            line = self._filled(trial, 0, {})
            return [Figure("time to refuse, median", line["refuse_us"], "us", ("IS-002",), line["error"])]
        line = self._filled(trial, self._mib, trial.system.memory(self._mib))
        had = line["bytes"] / (self._mib << 20)
        found = [Figure("memory had of the limit", 100.0 * had, "%", ("IS-001",))]
        if had >= TWICE:
            trial.notes.append(f"a limit of {self._mib} MiB was set and not held")
            return found
        found.append(Figure("time to refuse, median", line["refuse_us"], "us", ("IS-002",), line["error"]))
        shown = float(line["whole"]) / (self._mib << 20)
        return [*found, Figure("GPU memory that the program is told, of the limit", 100.0 * shown, "%")]

    def _filled(self, trial: Trial, mib: int, env: dict[str, str]) -> dict[str, Any]:
        worker = trial.start("fill", ["fill", "--mib", mib], server=True, env=env)
        if mib:
            trial.limit(worker, mib)
        return trial.go(worker, "filled")
