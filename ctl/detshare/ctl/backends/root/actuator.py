# SPDX-License-Identifier: Apache-2.0
"""The mechanisms: slices, levels, pause, resume, preempt, and putting back, on adopted programs.

Everything is written to the journal before the driver is asked to change it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.desired import Desired
from detshare.ctl.backends.root.journal import Before, Journal, Paused
from detshare.ctl.backends.root.undo import resume as resume_channels
from detshare.ctl.backends.root.undo import still_there, undo_process
from detshare.ctl.core import classes
from detshare.ctl.core.driver import Driver, DriverError, ProcessId
from detshare.ctl.core.snapshot import Kind, Level, Tsg, TsgChange
from detshare.ctl.rm.client import NoObject, RmClient, RmError


@dataclass(frozen=True, slots=True)
class Plan:
    """What a TSG should have. None: leave as found."""

    slice_us: int | None
    level: Level


def plan_of(desired: Desired, *, rivals: bool = False) -> Plan | None:
    """What a class or a raw slice means for each TSG; None where neither is asked for.

    `rivals`: another program stands at that level, and nobody gives them turns.
    """
    if desired.klass is not None:
        setting = classes.setting(desired.klass)
        short = rivals and setting.slice_us is not None and setting.slice_us < classes.RIVAL_US
        return Plan(classes.RIVAL_US if short else setting.slice_us, setting.level)
    if desired.slice_us is not None:
        return Plan(desired.slice_us, desired.level if desired.level is not None else Level.MEDIUM)
    return None


class Actuator:
    """Acts on one machine's programs through its driver."""

    def __init__(self, driver: Driver, abi: Abi, journal: Journal) -> None:
        self._driver = driver
        self.abi = abi
        self.journal = journal
        # What we last gave a TSG, by its handle and its hardware number: a handle may come to name another TSG.
        self._levels: dict[tuple[ProcessId, int, int], tuple[int, Level]] = {}
        self._slices: dict[tuple[ProcessId, int, int], tuple[int, int]] = {}
        self._lock = threading.RLock()
        """the thread of the turns sets slices too"""

    def level(self, process: ProcessId, tsg: Tsg) -> Level | None:
        """The level we last gave this very TSG."""
        tsg_id, level = self._levels.get((process, tsg.client, tsg.handle), (-1, Level.MEDIUM))
        return level if tsg_id == tsg.tsg_id else None

    def found_slice(self, process: ProcessId, tsg: Tsg) -> int:
        """The slice this TSG would have without us.

        A program may set it itself (libcuda does once, late in making a context): a slice that is not the one we set
        is the program's own.
        """
        before = self.journal.before(process, tsg.client, tsg.handle)
        ours = self._slices.get((process, tsg.client, tsg.handle))
        if before is None or before.tsg_id != tsg.tsg_id:
            return tsg.slice_us
        if ours is not None and ours != (tsg.tsg_id, tsg.slice_us):
            return tsg.slice_us
        return before.slice_us

    def _fresh(self, process: ProcessId, tsg: Tsg, through: RmClient | None) -> Tsg:
        """The same with its slice as it is now, where that was read before the turns set theirs, or is not ours."""
        ours = self._slices.get((process, tsg.client, tsg.handle))
        if ours is None or ours == (tsg.tsg_id, tsg.slice_us):
            return tsg
        with self._known(process, tsg) if through is None else nullcontext(through) as client:
            return replace(tsg, slice_us=client.timeslice(tsg.handle))

    def current(self, process: ProcessId) -> dict[tuple[int, int], int]:
        """(client, TSG) -> the slice that we gave it."""
        return {(k[1], k[2]): us for k, (_, us) in self._slices.items() if k[0] == process}

    def pausable(self, process: ProcessId, tsgs: Iterable[Tsg]) -> bool:
        """Whether there are channels that are not switched off yet."""
        off = self._off(process)
        return any((tsg.client, c) not in off for tsg in tsgs for c in tsg.channels)

    def _off(self, process: ProcessId) -> set[tuple[int, int]]:
        """(client, channel) of what we switched off."""
        return {(p.client, c) for p in self.journal.paused.get(process, ()) for c in p.channels}

    def apply(
        self, process: ProcessId, tsgs: Iterable[Tsg], plan: Plan, through: RmClient | None = None
    ) -> list[TsgChange]:
        """Bring TSGs of one process to a plan; only what differs is asked of the driver.

        `through`: a client of a descriptor that is borrowed, over which all of them were read a moment ago.
        NoObject where a TSG is not the one we know any more, RmError where the driver refuses, ProcessGone.
        """
        changes = []
        refused: RmError | None = None
        for tsg in tsgs:
            try:
                changes.append(self._apply(process, tsg, plan, through))
            except RmError as error:  # the others get theirs all the same
                refused = refused or error
        if refused is not None:
            raise refused
        return changes

    @contextmanager
    def _known(self, process: ProcessId, tsg: Tsg) -> Iterator[RmClient]:
        """A client over a borrowed descriptor that still knows this very TSG."""
        with self._driver.borrow(process, tsg.fd) as descriptor:
            client = RmClient(descriptor, self.abi, tsg.client)
            self._verify(client, tsg)
            yield client

    def retune(self, process: ProcessId, tsg: Tsg, slice_us: int) -> None:
        """Another slice for a TSG that has its plan: what a turn asks for. NoObject, RmError, DriverError, OSError."""
        key = (process, tsg.client, tsg.handle)
        with self._lock:
            if self.journal.before(*key) is None or self._slices.get(key) == (tsg.tsg_id, slice_us):
                return
            with self._known(process, tsg) as client:
                client.set_timeslice(tsg.handle, slice_us)
                self._slices[key] = (tsg.tsg_id, slice_us)

    def _apply(self, process: ProcessId, tsg: Tsg, plan: Plan, through: RmClient | None) -> TsgChange:
        with self._lock:
            return self._bring(process, tsg, plan, through)

    def _bring(self, process: ProcessId, tsg: Tsg, plan: Plan, through: RmClient | None) -> TsgChange:
        tsg = self._fresh(process, tsg, through)
        found = self.found_slice(process, tsg)
        wanted = found if plan.slice_us is None else plan.slice_us
        has_level = self.level(process, tsg)
        level_stands = has_level is plan.level or (has_level is None and plan.level is Level.MEDIUM)
        change = TsgChange(tsg.gpu, tsg.handle, wanted, plan.level.name.lower(), tsg.slice_us)
        key = (process, tsg.client, tsg.handle)
        stands = tsg.slice_us == wanted
        if stands and level_stands:
            return change
        with self._known(process, tsg) if through is None else nullcontext(through) as client:
            self.journal.remember(
                Before(process.pid, process.start, tsg.fd, tsg.client, tsg.handle, tsg.tsg_id, tsg.gpu, found)
            )
            if not stands:
                client.set_timeslice(tsg.handle, wanted)
            self._slices[key] = (tsg.tsg_id, wanted)
            if has_level is not plan.level:
                client.set_level(tsg.handle, plan.level)
                self._levels[key] = (tsg.tsg_id, plan.level)
        return change

    def _verify(self, client: RmClient, tsg: Tsg) -> None:
        if not still_there(client, self.abi, tsg.handle, tsg.tsg_id):
            status = self.abi.status("NV_ERR_OBJECT_NOT_FOUND")
            raise NoObject(f"TSG {tsg.handle:#x} is another one by now", status, self.abi.status_name(status))

    def _unchanged(self, process: ProcessId, tsg: Tsg) -> TsgChange:
        level = self.level(process, tsg)
        name = level.name.lower() if level is not None else None
        return TsgChange(tsg.gpu, tsg.handle, tsg.slice_us, name, tsg.slice_us)

    def pause(self, process: ProcessId, tsgs: Iterable[Tsg]) -> list[TsgChange]:
        """Switch off every channel of a process that is not off yet, copy channels after compute channels.

        Where a part fails, whatever the reason, what was switched off is switched on again before the error goes on.
        """
        try:
            with self.ready(process, tsgs) as (changes, switch):
                switch()
        except BaseException:
            with suppress(RmError, DriverError, OSError):
                self.resume(process)
            raise
        return changes

    @contextmanager
    def ready(
        self, process: ProcessId, tsgs: Iterable[Tsg]
    ) -> Iterator[tuple[list[TsgChange], Callable[[], None]]]:
        """A pause but for the driver's own part: what it will have changed, and what to call. `resume` undoes it.

        Never of a channel that we switched off already: the firmware counts, and a second time off wants a second
        time on.
        """
        off = self._off(process)
        groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        changes = []
        for tsg in sorted(tsgs, key=lambda t: t.kind is not Kind.COMPUTE):
            fresh = [c for c in tsg.channels if (tsg.client, c) not in off]
            groups[tsg.fd, tsg.client, tsg.subdevice] += fresh
            changes.append(self._unchanged(process, tsg))
        calls: list[Callable[[], None]] = []
        with ExitStack() as stack:
            for (fd, handle, subdevice), channels in groups.items():
                if not channels:
                    continue
                descriptor = stack.enter_context(self._driver.borrow(process, fd))
                self.journal.pause(Paused(process.pid, process.start, fd, handle, subdevice, tuple(channels)))
                client = RmClient(descriptor, self.abi, handle)
                calls.append(partial(client.switch_channels, subdevice, channels, run=False))

            def switch() -> None:
                for call in calls:
                    call()

            yield changes, switch

    def resume(self, process: ProcessId) -> None:
        """Switch on every channel that we switched off. What is refused is raised after the rest was tried."""
        refused: Exception | None = None
        for paused in tuple(self.journal.paused.get(process, ())):
            try:
                resume_channels(self._driver, self.abi, paused)
            except (RmError, DriverError, OSError) as error:
                refused = error
        if refused is not None:
            raise refused
        self.journal.unpause(process)

    def preempt(self, process: ProcessId, tsgs: Iterable[Tsg]) -> list[TsgChange]:
        """Take running work of compute TSGs off the GPU once."""
        changes = []
        for tsg in tsgs:
            with self._driver.borrow(process, tsg.fd) as descriptor:
                client = RmClient(descriptor, self.abi, tsg.client)
                self._verify(client, tsg)
                client.preempt(tsg.handle)
            changes.append(self._unchanged(process, tsg))
        return changes

    def prune(self, process: ProcessId, tsgs: Iterable[Tsg]) -> None:
        """Drop what is kept about TSGs that are gone: their handles and numbers will name others."""
        alive = {(process, t.client, t.handle): t.tsg_id for t in tsgs}
        tables: tuple[dict[tuple[ProcessId, int, int], tuple[int, Any]], ...] = (self._levels, self._slices)
        for table in tables:
            for key in [k for k, (number, _) in table.items() if k[0] == process and alive.get(k) != number]:
                del table[key]
        for key, before in [(k, b) for k, b in self.journal.slices.items() if k[0] == process]:
            if alive.get(key) != before.tsg_id:
                self.journal.forget_tsg(before)

    def release(self, process: ProcessId) -> list[str]:
        """Put a process back as it was found. Returns what could not be done."""
        problems = undo_process(self._driver, self.abi, self.journal, process)
        if not problems:
            self.forget(process)
        return problems

    def forget(self, process: ProcessId) -> None:
        """The process ended, or was put back."""
        self.journal.forget(process)
        tables: tuple[dict[tuple[ProcessId, int, int], Any], ...] = (self._levels, self._slices)
        for table in tables:
            for key in [k for k in table if k[0] == process]:
                del table[key]
