# SPDX-License-Identifier: Apache-2.0
"""What the thread of the turns knows, and how it brings programs to what was decided: off, on, and their slices."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from detshare.ctl.backends.root.turns.foreground import Foreground
from detshare.ctl.backends.root.turns.hand import Hand
from detshare.ctl.backends.root.turns.members import Member, tenant_of
from detshare.ctl.backends.root.turns.presence import Presence
from detshare.ctl.backends.root.turns.rests import Rests
from detshare.ctl.backends.root.turns.rotation import Rotation, Tenant
from detshare.ctl.backends.root.turns.sleepers import Sleepers
from detshare.ctl.core.classes import RIVAL_US, STREAM_US, WINDOW_US
from detshare.ctl.core.driver import DriverError, ProcessGone, ProcessId
from detshare.ctl.gputime.sensor import Sensor
from detshare.ctl.rm.client import RmError

ASK_S: Final = 0.02
UNUSED_S: Final = 3.0
"""a tenant that worked elsewhere for so long, and not on a GPU, leaves that to others: it has a context there alone"""
FAILURES: Final = (RmError, DriverError, OSError)


class Acting:
    """State and acts of the turns of one driver; its lock is held while a method runs."""

    def __init__(
        self,
        sensor: Sensor,
        hand: Hand,
        retune: Callable[[ProcessId, str, int], None],
        stale: Callable[[ProcessId], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`retune`: see to it that a program's TSGs on a GPU have a slice in microseconds, whoever set theirs since.

        `stale`: a program is to be read anew.
        """
        self.sensor = sensor
        self._hand, self._retune, self._stale, self._clock = hand, retune, stale, clock
        self._rotation = Rotation()
        self._foregrounds: dict[str, Foreground] = {gpu: Foreground() for gpu in sensor.gpus}
        self._members: dict[tuple[ProcessId, str], Member] = {}
        self._others = Presence()
        self._excluded: set[ProcessId] = set()
        self._untuned: set[tuple[ProcessId, str]] = set()
        """whose slice could not be set; tried again after the next look"""
        self._tenants: dict[str, dict[int, str]] = {}
        """GPU -> PID -> tenant of each member"""
        self._on: frozenset[str] = frozenset()
        self._done: object = None
        """what was seen to last, if all of it could be done"""
        self._due = 0.0
        """when the next step is due, unless somebody tells something"""
        self._told: dict[ProcessId, str] = {}
        self._looked: dict[str, float] = defaultdict(float)
        self._read: dict[str, float] = defaultdict(lambda: float("-inf"))
        """GPU -> when its log was read"""
        self._asked: dict[str, float] = defaultdict(float)
        self._leaves, self._sleepers = Rests(ASK_S), Sleepers()
        self._doubted: set[str] = set()
        """tenants that were at rest when they were asked last"""
        self._credited: dict[str, tuple[int, int]] = {}
        """GPU -> start of the run that went on at the last look, and nanoseconds of it that were counted"""
        self._rested: dict[tuple[str, str], int] = {}
        """(tenant, GPU) -> the GPU's time when it had no work"""
        self._ran: set[tuple[int, str]] = set()
        """(PID, GPU) of members that the log has shown there"""
        self._started: dict[tuple[str, str], int] = {}
        """(tenant, GPU) -> when its last run began, on the GPU's clock"""
        self._seen: dict[str, float] = {}
        """tenant -> when it had a GPU last"""
        self._lagging: dict[tuple[ProcessId, str], float] = {}
        """(MPS server, GPU) -> when it was first found to have work and not to have had that GPU for a while"""
        self._used: dict[tuple[str, str], float] = {}
        """(tenant, GPU) -> when it had that one last, or came there"""
        self._lock = threading.RLock()
        self._woken = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closing = False
        self.turns = 0
        """granted so far"""
        self.problems: list[tuple[ProcessId, str]] = []

    def _act(self, wanted: frozenset[str]) -> None:
        """Those whose turn is over first: one holder at a time."""
        todo = wanted, [(gpu, self._wanted(gpu)) for gpu in self._tenants]
        if todo == self._done:
            return
        self._done = todo
        movable = [m for m in self._members.values() if not m.fixed]
        crowd = {m.tenant for m in movable}
        for process in dict.fromkeys(m.process for m in movable if m.tenant not in wanted):
            if not self._hand.is_off(process):
                self._switch(process, run=False)
        for gpu in {m.gpu for m in movable}:
            self._tune(gpu, wanted)
        for process in dict.fromkeys(m.process for m in movable if m.tenant in wanted):
            if self._hand.is_off(process):
                self._switch(process, run=True)
        self._doubted &= wanted
        granted = set(self._rotation.grants) - self._on
        self._rested = {key: at for key, at in self._rested.items() if key[0] not in granted}
        self.turns += len((wanted - self._on) & crowd)
        self._on = wanted

    def _tune(self, gpu: str, wanted: frozenset[str]) -> None:
        """Holders have the slice that the foreground's pattern asks for."""
        slice_us = self._wanted(gpu)
        for (process, where), member in self._members.items():
            runs = where == gpu and (member.tenant in wanted or member.fixed)
            if runs and (process, gpu) not in self._untuned:
                try:
                    self._retune(process, gpu, slice_us)
                except FAILURES as error:
                    self._untuned.add((process, gpu))
                    self._failed(process, error)

    def _wanted(self, gpu: str) -> int:
        fore = self._foregrounds[gpu]
        whole = self._rotation.holds_up(gpu, fore.full or not self._others.at(gpu))
        slice_us = WINDOW_US if whole else fore.slice_us
        alone = not self._others.at(gpu)
        if alone and (not self._others.there(gpu) or sum(where == gpu for _, where in self._members) > 1):
            slice_us = max(slice_us, STREAM_US)  # who comes back from a rest and the holder both get on meanwhile
        return RIVAL_US if slice_us < RIVAL_US and self._has_rivals(gpu) else slice_us

    def _has_rivals(self, gpu: str) -> bool:
        """Whether programs run at once: an MPS server beside the holder, or several processes of one tenant."""
        here = [m for (_, g), m in self._members.items() if g == gpu]
        if any(m.fixed for m in here):
            return True
        if len({m.tenant for m in here}) == len(here):
            return False
        blind = gpu in self.sensor.refused()
        working = [m.tenant for m in here if blind or (m.process.pid, gpu) in self._ran]
        return len(working) > len(set(working))

    def _switch(self, process: ProcessId, *, run: bool) -> None:
        try:
            if run:
                self._hand.on(process)
            else:
                self._hand.off(process, [t for (p, _), m in self._members.items() if p == process for t in m.tsgs])
            self._told.pop(process, None)
        except FAILURES as error:
            self._failed(process, error)

    def _failed(self, process: ProcessId, error: Exception) -> None:
        """What it is made of changed: look at it anew, until then it runs. Or it has ended, which is no problem."""
        self._done = None
        with suppress(*FAILURES):
            self._hand.on(process)  # of one that has ended: a forked child may hold what it made
        if isinstance(error, ProcessGone):
            self._members = {key: m for key, m in self._members.items() if key[0] != process}
            self._tell_rotation()
            return
        self._stale(process)
        if self._told.get(process) != str(error):
            self._told[process] = str(error)
            self.problems.append((process, str(error)))

    def _let_go(self, process: ProcessId) -> None:
        try:
            self._hand.leave(process)
        except ProcessGone:
            pass
        except FAILURES as error:
            self.problems.append((process, f"not switched on again: {error}"))
        self._forget(process)

    def _forget(self, process: ProcessId) -> None:
        tenants = {m.tenant for m in self._members.values()}
        self._ran = {key for key in self._ran if key[0] != process.pid}
        self._lagging = {key: at for key, at in self._lagging.items() if key[0] != process}
        self._started = {key: at for key, at in self._started.items() if key[0] in tenants}
        self._told.pop(process, None)

    def _tell_rotation(self) -> None:
        self._done, self._tenants = None, defaultdict(dict)
        by_key: dict[str, list[Member]] = defaultdict(list)
        for member in self._members.values():
            self._tenants[member.gpu][member.process.pid] = member.tenant
            if not member.fixed:
                by_key[member.tenant].append(member)
        now = self._clock()
        places = {(m.tenant, m.gpu) for m in self._members.values()}
        self._used = {place: self._used.get(place, now) for place in places}
        self._rotation.update([self._where_it_works(tenant_of(members)) for members in by_key.values()], now)

    def _where_it_works(self, tenant: Tenant) -> Tenant:
        """The same on the GPUs that it uses, as far as that is known, and those where it must make room."""
        last = self._seen.get(tenant.key, 0.0)
        used = frozenset(
            gpu for gpu in tenant.gpus if self._others.at(gpu) or last - self._used[tenant.key, gpu] < UNUSED_S
        )
        return replace(tenant, gpus=used or tenant.gpus)

    def _came(self, tenant: str, gpu: str, now: float) -> None:
        """A tenant was seen on a GPU, or holds one whose log says nothing."""
        self._seen[tenant] = self._used[tenant, gpu] = now
        state = self._rotation.states.get(tenant)
        if state is not None and gpu not in state.tenant.gpus:
            self._tell_rotation()
