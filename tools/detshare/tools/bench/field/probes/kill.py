# SPDX-License-Identifier: Apache-2.0
"""What is left after a program was killed in the middle of its work, and whom a faulting program takes along."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

import pynvml

from detshare.tools.bench.field.probes.trial import Probe, Trial
from detshare.tools.bench.mix.figures import Figure
from detshare.tools.bench.mix.worker import Worker
from detshare.tools.bench.process import ProgramError

__all__ = ["Fault", "Kill"]

GRAIN = 2 << 20
"""bytes: what the driver allocates at least; less is nothing"""
PATIENCE = 10.0
"""seconds in which all must be back; what is not is left"""


def _free(watch: Worker) -> int:
    """Bytes, as the driver said last. ProgramError where it says nothing any more."""
    since = time.monotonic()
    return int(watch.program.wait_for("free", PATIENCE, since)["bytes"])


def _until(done: Callable[[], bool]) -> bool:
    """Whether it came about in time."""
    until = time.monotonic() + PATIENCE
    while not (found := done()) and time.monotonic() < until:
        time.sleep(0.002)
    return found


def listed(pid: int) -> bool | None:
    """Whether NVML names the process among those that compute; None where NVML does not say."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            return any(each.pid == pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        finally:
            pynvml.nvmlShutdown()
    return None


class Kill(Probe):
    """SIGKILL of a program with memory and kernels in flight, beside one that goes on."""

    name, seconds = "kill", 20.0
    about = "a background killed in the middle of its work"

    def __init__(self, mib: int = 2048) -> None:
        self._mib = mib

    def measure(self, trial: Trial) -> list[Figure]:
        watch = trial.start("watch", ["watch"], server=True)
        before = _free(watch)
        victim = trial.start("victim", ["hold", "--mib", self._mib])
        trial.go(victim)
        if not _until(lambda: before - _free(watch) >= self._mib << 20):
            raise ProgramError("the memory of the program that is to be killed was not seen by the other one")
        victim.program.wait_for("steps", PATIENCE)
        os.kill(victim.pid, signal.SIGKILL)
        begin = time.monotonic()
        ids, lost = ("ERR-002",), 0.0
        left, took = before, PATIENCE
        try:
            if _until(lambda: before - _free(watch) < GRAIN):
                took = time.monotonic() - begin
            left = before - _free(watch)
        except ProgramError as error:  # whoever dies of it cannot say what is left
            lost = 1.0
            trial.notes.append(f"the program beside it ended: {error}")
        found = [Figure("programs beside it that ended", lost, "", ("IS-010",))]
        if not lost:
            found.append(Figure("GPU memory left", max(0, left) / (1 << 20), "MiB"))
            found.append(Figure("until its memory is back", took * 1e3, "ms", ids))
        known = listed(victim.pid)
        if known is not None:
            found.append(Figure("processes left", float(known), ""))
        return [*found, Figure("newcomers refused", float(self._refused(trial)), "", ids)]

    def _refused(self, trial: Trial) -> bool:
        try:
            trial.go(trial.start("newcomer", ["hold", "--mib", 1]))
        except ProgramError as error:
            trial.notes.append(f"the next program did not start: {error}")
            return True
        return False


class Fault(Probe):
    """A kernel that writes where no memory is, beside a program that goes on."""

    name, seconds = "fault", 8.0
    about = "a background whose kernel reaches where no memory is"

    def measure(self, trial: Trial) -> list[Figure]:
        watch = trial.start("watch", ["watch"], server=True)
        faulty = trial.start("faulty", ["fault"])
        line = trial.go(faulty, "faulted")
        if not line["error"]:
            raise ProgramError("the kernel that reaches where no memory is ended well")
        trial.session.drop(faulty.program)
        lost = 0.0
        try:
            _free(watch)
        except ProgramError as error:
            lost = 1.0
            trial.notes.append(f"the program beside it ended: {error}")
        told = Figure("until the program is told of its fault", line["us"], "us", ("ERR-001",), line["error"])
        return [told, Figure("programs beside a fault that ended", lost, "", ("IS-010",))]
