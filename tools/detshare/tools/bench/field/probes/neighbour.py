# SPDX-License-Identifier: Apache-2.0
"""What a program keeps of its rate and of its evenness beside others; changed bits; equal programs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from detshare.tools.bench.field.probes.trial import Probe, Trial
from detshare.tools.bench.mix.figures import Figure
from detshare.tools.bench.mix.worker import Worker
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.stats import jain

__all__ = ["Bits", "Equals", "Neighbour", "own_us"]


def own_us(trial: Trial, worker: Worker) -> list[float]:
    """Microseconds of each request of an interval, back to back."""
    begin = time.monotonic()
    time.sleep(trial.seconds)
    end = time.monotonic()
    worker.stop()
    worker.answered()
    took = worker.requests(begin, end).own_us
    if not took:
        raise ProgramError(f"{worker.name} finished no request in {trial.seconds:g} s")
    return took


class Neighbour(Probe):
    """A program of short kernels, alone under this way and then beside one that fills the GPU."""

    name, seconds = "neighbour", 12.0
    about = "kernels of half a millisecond beside ones that fill the GPU"

    def measure(self, trial: Trial) -> list[Figure]:
        victim = trial.start("victim", ["serve"], server=True)
        trial.go(victim)
        lone = own_us(trial, victim)
        rate, evenness = 1e6 / statistics.fmean(lone), statistics.pstdev(lone) / statistics.fmean(lone)
        found = [
            Figure("rate with nobody beside it", rate, "1/s"),
            Figure("scatter with nobody beside it", evenness, ""),
        ]
        if native := trial.native.get("rate with nobody beside it"):
            lost = 100.0 * (1.0 - rate / native.value)
            found.append(Figure("rate lost with nobody beside it", lost, "%", ("OH-010",)))
        if trial.alone:
            return found
        noisy = trial.start("noisy", ["hold", "--mib", 64])
        trial.go(noisy)
        trial.go(victim)
        beside = own_us(trial, victim)
        kept = 100.0 * statistics.fmean(lone) / statistics.fmean(beside)
        scatter = statistics.pstdev(beside) / statistics.fmean(beside)
        return [
            *found,
            Figure("rate kept beside a neighbour", kept, "%", ("IS-006",)),
            Figure("rate lost to a neighbour", 100.0 - kept, "%", ("IS-009",)),
            Figure("scatter beside a neighbour", scatter, "", ("IS-007",)),
        ]


class Equals(Probe):
    """Programs that are alike, at the same time, each a process; none of them before the others."""

    name, seconds = "equals", 12.0
    about = "four equal programs at once"

    def __init__(self, count: int = 4) -> None:
        self._count = count

    def measure(self, trial: Trial) -> list[Figure]:
        some = [trial.start(f"equal {number}", ["hold", "--mib", 16]) for number in range(self._count)]
        for each in some:
            trial.go(each)
        begin = time.monotonic()
        time.sleep(trial.seconds)
        end = time.monotonic()
        for each in some:
            each.stop()
        for each in some:
            each.answered()
        done = [float(len(each.steps(begin, end))) for each in some]
        return [Figure(f"fairness of {self._count} equal programs (Jain)", jain(done), "", ("IS-008",))]


class Bits(Probe):
    """Programs that compute the same thing again and again, beside one that fills the GPU; their digests."""

    name, seconds = "bits", 45.0
    about = "outputs that differ from those alone"

    def __init__(
        self, kinds: Sequence[str] = ("sums", "eager", "graphs"), times: int = 2, within: float = 60.0
    ) -> None:
        self._kinds, self._times, self._within = kinds, times, within

    def measure(self, trial: Trial) -> list[Figure]:
        if not trial.alone:
            trial.go(trial.start("noisy", ["hold", "--mib", 64]))
        found = []
        for kind in self._kinds:
            try:
                found += self._of(trial, kind)
            except ProgramError as error:
                trial.notes.append(f"{kind}: {error}")
        if not found:
            raise ProgramError("; ".join(trial.notes) or "no program computed anything")
        return found

    def _of(self, trial: Trial, kind: str) -> list[Figure]:
        program = trial.start(f"again {kind}", ["--kind", kind], server=True, script="mix/again.py").program
        lines, since = [], time.monotonic()
        for _ in range(self._times):
            lines.append(program.wait_for("digest", self._within, since))
            since = float(lines[-1]["t"]) + 1e-6
        program.end()
        digests = [str(line["sha256"]) for line in lines]
        if trial.alone:
            if len(set(digests)) > 1:
                raise ProgramError("it computes something else each time, alone too")
            return [Figure(f"outputs of {kind}", float(len(digests)), "", (), digests[0])]
        native = trial.native.get(f"outputs of {kind}")
        if native is None:
            raise ProgramError("it was not measured alone")
        changed = sum(each != native.text for each in digests)
        return [
            Figure(f"outputs of {kind}", float(len(digests)), "", (), digests[0]),
            Figure(f"changed outputs of {kind}", float(changed), ""),
        ]
