# SPDX-License-Identifier: Apache-2.0
"""`park --deep`: after the library's park the driver's own checkpoint takes the rest, the context and the code.

The library keeps the program out of the driver meanwhile. A call of the program that waits there is seen here: then the
driver restores, the library lets the call in, and that fetches the memory as after any park.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Final

from detshare.ctl.backends.spatial.checkpoints import LENT, LOCK_S, SHARES, STAYS, Checkpoints
from detshare.ctl.backends.spatial.entry import Entry
from detshare.ctl.backends.spatial.residence import TIMEOUT, Residence
from detshare.ctl.checkpoint import calls
from detshare.ctl.core import procfs, select
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Change, Outcome, Program, Skip, State
from detshare.ctl.core.work import Parking
from detshare.runtime.tenant import View

__all__ = ["Deep"]

BACK_S: Final = 20.0
"""seconds that resume waits for the driver's restore"""
POLL_S: Final = 0.005
RETRY_S: Final = 0.5
"""between two tries to bring back who wants to and has no room"""


class Deep:
    """Of all programs under the library. `checkpoints` has the driver's part; it lets programs in again by itself."""

    def __init__(self, residence: Residence, checkpoints: Checkpoints) -> None:
        self._residence = residence
        self._checkpoints = checkpoints
        self._shut = residence.shut
        self._stop = threading.Event()
        self._some = threading.Event()
        self._tried: dict[ProcessId, float] = {}
        known = checkpoints.deep()
        for process in self._shut.all() - known.keys():
            # its journal was lost, or the daemon was killed before it wrote it
            if (entry := self.entry(process)) is None:
                self._shut.ask(process, False)
            else:
                checkpoints.take_up(entry)
        self._watcher = threading.Thread(target=self._watch, name="deep", daemon=True)
        self._watcher.start()
        self._some.set()

    def close(self) -> None:
        """Stop looking. Idempotent."""
        self._stop.set()
        self._some.set()
        self._watcher.join()

    # -- verbs --------------------------------------------------------------------------------------------------

    def park(self, parked: Outcome, timeout: float | None) -> Outcome:
        """The outcome of a park by the library, after the driver took the rest of those that it parked."""
        until = time.monotonic() + (TIMEOUT if timeout is None else timeout)
        changed = tuple(replace(each, note=f"{each.note}; {self._rest(each.pid, until)}") for each in parked.changed)
        return replace(parked, changed=changed)

    def _rest(self, pid: int, until: float) -> str:
        """What became of what a park leaves on the GPU, in words."""
        process = next((each for each in self._residence.processes() if each.pid == pid), None)
        entry = self.entry(process) if process is not None else None
        if process is None or entry is None:
            return "it has ended"
        stays = "its context stays on the GPU"
        if any(not view.record.observed for view in self._views(process)):
            return f"{stays}: {STAYS}"
        if why := self.keeps(process) or calls.absent():
            return f"{stays}: {why}"
        if process in self._checkpoints.deep():
            return "its context had left already"
        self._shut.ask(process, True)
        if why := self.wait_shut(process, until):
            self._shut.ask(process, False)
            return f"{stays}: {why}"
        done = self._checkpoints.take_rest(entry, LOCK_S)
        self._some.set()
        if not _ended(done, until):
            return "the driver's checkpoint takes its context: under way, see events"
        if entry.state == "parked":
            return f"its context left by the driver's checkpoint in {entry.park_ms / 1e3:.3g} s"
        return f"{stays}: {entry.note or 'the driver refused'}"

    def keeps(self, process: ProcessId) -> str:
        """Why the driver's checkpoint must not have a program now that its library parked it; empty where it may."""
        views = self._views(process)
        if any(view.counters["lent_bytes"] for view in views):
            return LENT
        return SHARES if any(view.counters["shares"] for view in views) else ""

    def wait_shut(self, process: ProcessId, until: float) -> str:
        """Empty once the program is out of the driver, else why it is not."""
        while (stands := self._shut.stands(process)) is None:
            if time.monotonic() > until:
                return "its library did not leave the driver in time: try a longer --timeout"
            time.sleep(0.001)
        return "" if stands else "it came back meanwhile"

    def resume(self, who: str) -> list[Skip]:
        """Have the driver restore those that are selected; who stays away, and why. What follows is the library's."""
        selector = select.parse(who)
        mine = [each for each in self._checkpoints.deep().values() if selector.matches(each)]
        done = [self._checkpoints.wake(entry) for entry in mine]
        wait(done, BACK_S)
        stays = "it stays parked, its context too, and nothing is lost"
        return [Skip(each.id.pid, f"{stays}: {each.note or 'the driver takes long'}") for each in mine if each.away]

    # -- what others see ----------------------------------------------------------------------------------------

    def shown(self, program: Program, parking: Parking | None) -> Program:
        """With both parts of its park, where it is in the driver's checkpoint."""
        if program.id not in self._checkpoints.deep():
            return program
        both = parking or program.parking
        return replace(program, parking=both and replace(both, way="deep"), state=State.PARKED)

    def _views(self, process: ProcessId) -> list[View]:
        return [view for view in self._residence.views() if view.record.process == process]

    def entry(self, process: ProcessId) -> Entry | None:
        """As the driver's part of the park has it; None where it ended."""
        views = self._views(process)
        try:
            seen = procfs.describe(process.pid, process.start, [], [])
        except OSError:
            return None
        gpus = tuple(dict.fromkeys(view.record.gpu.uuid for view in views))
        klass = views[0].record.desired.klass if views else None
        return Entry(seen.id, seen.command, seen.user, seen.container, gpus, klass, 0, "leaving", deep=True)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop.is_set():
            away = self._checkpoints.deep()
            if not away:
                self._tried.clear()
                self._some.wait(1.0)
                self._some.clear()
                continue
            for process, entry in away.items():
                wants = entry.state == "parked" and self._shut.wants_back(process)
                if wants and time.monotonic() > self._tried.get(process, 0.0) + RETRY_S:
                    wait([self._checkpoints.wake(entry)])
                    self._tried[process] = time.monotonic()
            self._stop.wait(POLL_S)


def _ended(done: Future[None], until: float) -> bool:
    return not wait([done], max(until - time.monotonic(), 0.0)).not_done


def answered(outcome: Outcome, stays: list[Skip]) -> Outcome:
    """An outcome of `resume`, with those that the driver did not restore."""
    pids = {skip.pid for skip in stays}
    answers: list[Change | Skip] = [each for each in outcome.changed if each.pid not in pids]
    answers += [*stays, *(skip for skip in outcome.skipped if skip.pid not in pids)]
    return Outcome.of(outcome.verb, answers, outcome.seconds)
