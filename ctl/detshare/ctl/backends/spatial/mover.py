# SPDX-License-Identifier: Apache-2.0
"""`migrate` of programs under the library: parked by it, the rest moved by the driver's checkpoint, back by it.

What is parked lies in host memory, so the driver has only the context and the code to take. Whatever fails before
the restore leaves the program on its GPU; where the other one has no room for its memory, it is moved back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Final

from detshare.ctl.backends.spatial.checkpoints import LOCK_S, Checkpoints
from detshare.ctl.backends.spatial.deep import Deep
from detshare.ctl.backends.spatial.residence import BACK, TIMEOUT, Residence
from detshare.ctl.checkpoint import gpumap
from detshare.ctl.core import select
from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.snapshot import Change, Event, Program, Skip
from detshare.runtime import board_layout as layout

__all__ = ["Mover"]

STAY_S: Final = 60.0
"""the longest that its own calls wait for a move; without a daemon they go on then"""
_HOME: Final = {layout.PARK_HOME, layout.PARK_LENT}


class Mover:
    """One move at a time: they share the bus."""

    def __init__(self, residence: Residence, checkpoints: Checkpoints, deep: Deep) -> None:
        self._residence = residence
        self._checkpoints = checkpoints
        self._deep = deep
        self._lock = threading.Lock()
        self._moving: set[ProcessId] = set()
        self._events: list[Event] = []
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="mover")

    def close(self) -> None:
        """End what goes on, begin nothing more. Idempotent."""
        self._jobs.shutdown(wait=True, cancel_futures=True)

    # -- what others see ----------------------------------------------------------------------------------------

    def drain_events(self) -> list[Event]:
        """Events since the last call, oldest first."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def stirs(self) -> bool:
        """Whether a look has something new to tell."""
        return bool(self._moving or self._events)

    def shown(self, program: Program) -> Program:
        """Under way, from the command on until it runs again."""
        if program.id not in self._moving or program.parking is None or program.parking.state != "home":
            return program
        return replace(program, parking=replace(program.parking, state="leaving"))

    def _say(self, pid: int, said: str) -> None:
        with self._lock:
            self._events.append(Event(time.time(), "park", pid, said))

    # -- the verb -----------------------------------------------------------------------------------------------

    def takes(self, program: Program) -> bool:
        """Whether its library has memory to park; the driver's checkpoint alone takes all others."""
        mine = program.spatial is None and program.id in self._residence.processes()
        return mine and program.parking is not None and bool(program.parking.parkable_bytes)

    def migrate(
        self, who: str, programs: Iterable[Program], gpus: Sequence[Gpu], gpu: str, timeout: float | None
    ) -> list[Change | Skip]:
        """Begin to move the selected ones that it takes. BadRequest: no such GPU."""
        new, selector = gpumap.target(gpus, gpu), select.parse(who)
        chosen = [each for each in programs if selector.matches(each) and self.takes(each)]
        return [self._begin(each, gpus, new, LOCK_S if timeout is None else timeout) for each in chosen]

    def _begin(self, program: Program, gpus: Sequence[Gpu], new: Gpu, lock_s: float) -> Change | Skip:
        pid = program.id.pid
        if program.id in self._moving:
            return Skip(pid, "it is being moved already")
        program = replace(program, gpus=self._residence.gpus(program.id))
        if why := self._checkpoints.stays(program, gpus, new):
            return Skip(pid, why)
        if why := self._residence.moves.other_parts(program.id, new.uuid):
            return Skip(pid, why)
        home = self._residence.moves.state(program.id) <= _HOME
        self._moving.add(program.id)
        self._jobs.submit(self._guarded, program, gpus, new, lock_s, home)
        return Change(
            pid, note=f"by its library and the driver's checkpoint, to GPU {new.minor}: under way; see events"
        )

    # -- the thread ---------------------------------------------------------------------------------------------

    def _guarded(self, program: Program, gpus: Sequence[Gpu], new: Gpu, lock_s: float, home: bool) -> None:
        process, pid = program.id, program.id.pid
        try:
            why = self._move(program, gpus, new, lock_s, home)
            if why:
                self._say(pid, f"is not moved, nothing is lost: {why}")
        except Exception as error:  # noqa: BLE001  told, whatever it is; the program goes on
            self._say(pid, f"is not moved: {type(error).__name__}: {error}")
        finally:
            if process not in self._checkpoints.deep():
                self._residence.shut.ask(process, False)
            self._residence.moves.stay(process, 0)
            self._moving.discard(process)

    def _move(self, program: Program, gpus: Sequence[Gpu], new: Gpu, lock_s: float, home: bool) -> str:
        """Empty once it is there, else why not: then it is where it was."""
        process, pid, old = program.id, program.id.pid, program.gpus[0]
        began = time.monotonic()
        self._residence.moves.stay(process, STAY_S)
        if home and (skipped := self._residence.park(str(pid), TIMEOUT).skipped):
            return skipped[0].reason
        parked = time.monotonic()
        if why := self._rest(process, gpus, old, new.uuid, lock_s):
            return why + self._back(process, home)
        driven = time.monotonic()
        if why := self._back(process, home):
            again = self._rest(process, gpus, new.uuid, old, lock_s)
            where = f"; it stays on GPU {new.minor}, parked: {again}" if again else self._back(process, home)
            return f"GPU {new.minor} has no room for its memory{where}"
        spent = f"away {parked - began:.3g} s, its context {driven - parked:.3g} s"
        took = time.monotonic() - began
        self._say(
            pid, f"moved from {old} to {new.uuid} in {took:.3g} s: {spent}, back {time.monotonic() - driven:.3g} s"
        )
        return ""

    def _rest(self, process: ProcessId, gpus: Sequence[Gpu], old: str, new: str, lock_s: float) -> str:
        """Have the driver move what a park leaves; why it did not."""
        entry = self._deep.entry(process)
        if entry is None:
            return "it has ended"
        if why := self._deep.keeps(process):
            return why
        self._residence.shut.ask(process, True)
        if why := self._deep.wait_shut(process, time.monotonic() + TIMEOUT):
            self._residence.shut.ask(process, False)
            return why
        done: Future[None] = self._checkpoints.move_rest(entry, lock_s, gpumap.pairs(gpus, old, new), new)
        wait([done])
        if entry.gpus == (new,) and not entry.away:
            return ""
        return entry.note or "the driver refused"

    def _back(self, process: ProcessId, home: bool) -> str:
        """Have its memory back if it was there before; why it is not."""
        if not home or process in self._checkpoints.deep():
            return ""
        self._residence.moves.stay(process, 0)
        self._residence.resume(str(process.pid), timeout=0.0)
        until = time.monotonic() + BACK
        while not (state := self._residence.moves.state(process)) <= _HOME:
            if layout.PARK_WAITING in state or time.monotonic() > until:
                return "; it comes back as soon as its GPU has room"
            time.sleep(0.001)
        return ""
