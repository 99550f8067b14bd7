# SPDX-License-Identifier: Apache-2.0
"""What a program keeps of memory, of L2 and of the bus beside others that use them; managed memory that fits."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from detshare.tools.bench.field.probes.neighbour import own_us
from detshare.tools.bench.field.probes.trial import Probe, Trial
from detshare.tools.bench.mix.figures import Figure
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.stats import jain

__all__ = ["Managed", "Traffic"]

MIB = 1 << 20


@dataclass(frozen=True)
class Path:
    """Where bytes go, and who goes that way beside it."""

    word: str
    where: str
    mib: int
    times: int
    """that a request copies them, each time read and written"""
    beside: str
    beside_mib: int
    kept: tuple[str, ...]
    lost: tuple[str, ...]


PATHS = (
    Path("device", "within the GPU", 256, 2, "device", 256, ("BW-001",), ("BW-004",)),
    Path("cache", "within L2", 4, 2 * 16, "device", 256, (), ("CACHE-003", "CACHE-004")),
    Path("host", "to the GPU", 64, 1, "host", 64, (), ("PCIE-003",)),
)


class Traffic(Probe):
    """Copies along each path, alone under this way and then beside a process that copies too."""

    name, seconds = "traffic", 40.0
    about = "copies within the GPU, within its L2 and to it, beside a process that copies"

    def __init__(self, most_mib: int = 256) -> None:
        self._most = most_mib

    def measure(self, trial: Trial) -> list[Figure]:
        found: list[Figure] = []
        for path in PATHS:
            try:
                found += self._along(trial, path)
            except ProgramError as error:
                trial.notes.append(f"{path.where}: {error}")
            trial.end()
        if not found:
            raise ProgramError("; ".join(trial.notes))
        return found if trial.alone else [*found, self._equals(trial)]

    def _words(self, word: str, mib: int) -> list[object]:
        return ["move", "--path", word, "--mib", min(mib, self._most)]

    def _along(self, trial: Trial, path: Path) -> list[Figure]:
        victim = trial.start("victim", self._words(path.word, path.mib), server=True)
        size = path.times * min(path.mib, self._most) * MIB
        trial.go(victim)
        lone = statistics.fmean(own_us(trial, victim))
        found = [Figure(f"copy {path.where}", size / lone / 1e3, "GB/s")]
        if trial.alone:
            return found
        noisy = trial.start("noisy", self._words(path.beside, path.beside_mib))
        trial.go(noisy)
        trial.go(victim)
        kept = 100.0 * lone / statistics.fmean(own_us(trial, victim))
        return [
            *found,
            Figure(f"rate kept of copies {path.where}", kept, "%", path.kept),
            Figure(f"rate lost of copies {path.where}", 100.0 - kept, "%", path.lost),
        ]

    def _equals(self, trial: Trial) -> Figure:
        some = [trial.start(f"equal {number}", self._words("device", 256)) for number in range(2)]
        for each in some:
            trial.go(each)
        begin = time.monotonic()
        time.sleep(trial.seconds)
        end = time.monotonic()
        for each in some:
            each.stop()
        for each in some:
            each.answered()
        done = [float(len(each.requests(begin, end).at)) for each in some]
        return Figure("fairness of two that copy (Jain)", jain(done), "", ("BW-002",))


class Managed(Probe):
    """Managed memory that fits the GPU many times over: more of it than fits can hang a GPU, and is not tried."""

    name, seconds = "managed memory", 12.0
    about = "96 MiB of managed memory, to the GPU and back, beside kernels that fill the GPU"

    def __init__(self, mib: int = 96) -> None:
        self._mib = mib

    def measure(self, trial: Trial) -> list[Figure]:
        worker = trial.start("managed", ["managed", "--mib", self._mib], server=True)
        if not trial.alone:
            trial.go(trial.start("noisy", ["hold", "--mib", 64]))
        seen = trial.go(worker, "moved")["seen"]
        ids = {
            "touched by the GPU": ("UVM-001",),
            "prefetched to the CPU": ("UVM-005",),
            "prefetched to the GPU": ("UVM-006",),
        }
        found = [Figure(what, float(value), "ms", ids.get(what, ())) for what, value in seen.items()]
        rate = self._mib * MIB / 1e6 / float(seen["prefetched to the GPU"])
        return [*found, Figure("prefetch", rate, "GB/s", ("UVM-008",))]
