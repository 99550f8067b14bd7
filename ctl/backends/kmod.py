# SPDX-License-Identifier: Apache-2.0
"""Backend `kmod`: the kernel module sees, limits and steers; what it cannot do yet goes the way of backend `root`.

Limits and orders (slice and level) stand in the kernel, which applies orders to channel groups that come later by
itself, from a process's first one on. Pause, resume and preempt act through the program's own descriptors, with
journal and guardian as in backend `root`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from detshare.ctl import census, classes, module, select
from detshare.ctl.backends.base import Backend
from detshare.ctl.backends.root import RootBackend
from detshare.ctl.happenings import differences
from detshare.ctl.kernel_watch import KernelWatch, mps_server
from detshare.ctl.limits import Limits, nobody, outcome
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.link import Link
from detshare.ctl.netlink.records import SchedRow, TsgRow
from detshare.ctl.rm.abi import Abi, UnknownBranch, for_version
from detshare.ctl.rm.driver import Driver, DriverError, Holder, ProcessGone, ProcessId
from detshare.ctl.snapshot import (
    Change,
    Check,
    Event,
    Level,
    Outcome,
    Program,
    Skip,
    Snapshot,
    TsgChange,
)
from detshare.ctl.wishes import Wish, Wishes

_MOST_EVENTS: Final = 10_000
_FAILURES: Final = (DriverError, OSError)
_HANDS_TELL: Final = ("pause", "resume", "preempt", "release", "error")
"""events of the hands that are not seen through the kernel module anyway"""


class KmodBackend(Backend):
    """Implements detshare.ctl.backends.base.Backend over detshare.ko."""

    def __init__(
        self,
        link: Link,
        driver: Driver,
        run_dir: Path,
        *,
        repair: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`repair`: first undo what a killed daemon left; orders and limits stand in the kernel all the same."""
        self._link = link
        self._driver = driver
        self._clock = clock
        self._wishes = Wishes(run_dir, driver.proof)
        # pauses only: all else that was wished for is given to the kernel
        hands = Wishes(run_dir, f"{driver.proof}-hands")
        self._hands = RootBackend(driver, run_dir, name=self.name, repair=repair, clock=clock, wishes=hands)
        self._abi: Abi | None
        try:
            self._abi = for_version(driver.version)
        except UnknownBranch:
            self._abi = None
        self._watch = KernelWatch(link, driver, self._abi, clock)
        self._limits = Limits(link, driver, self._watch)
        self._events: list[Event] = []
        self._told: dict[ProcessId, str] = {}
        self._seen: dict[ProcessId, Program] = {}
        self._closed = False

    @property
    def name(self) -> str:
        return "kmod"

    def _keep(self, events: Iterable[Event]) -> None:
        self._events += events
        del self._events[:-_MOST_EVENTS]

    def _say(self, kind: str, pid: int | None, text: str) -> None:
        self._keep([Event(time.time(), kind, pid, text)])

    def _complain(self, process: ProcessId, text: str) -> None:
        """An error event, once until the text changes."""
        if self._told.get(process) != text:
            self._told[process] = text
            self._say("error", process.pid, text)

    def drain_events(self) -> Sequence[Event]:
        self._keep(self._watch.drain_events())
        self._keep(event for event in self._hands.drain_events() if event.kind in _HANDS_TELL)
        events, self._events = self._events, []
        return sorted(events, key=lambda event: event.when)

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, *, enforce: bool = True) -> Snapshot:
        started = self._clock()
        if self._hands.holding:
            self._hands.look(enforce=enforce)  # contexts that were made meanwhile are paused too
        status = self._watch.refresh()
        if enforce and status.mode == module.ENFORCE and self._enforce():
            status = self._watch.refresh()
        found = self._describe()
        now = {program.id: program for program in found}
        self._keep(differences(self._seen, now))
        self._seen = now
        self._told = {p: t for p, t in self._told.items() if p in now}
        seen = self._watch.census
        totals = {row.minor: row.total or 0 for row in seen.gpu_rows}
        return Snapshot(
            backend=self.name,
            proof=self._driver.proof,
            driver=status.driver_version or self._driver.version,
            taken=started,
            seconds=self._clock() - started,
            gpus=tuple(replace(g, memory_bytes=g.memory_bytes or totals.get(g.minor, 0)) for g in seen.gpus),
            programs=tuple(found),
            warnings=module.warnings(status),
            accounts=seen.accounts(),
            tenants=seen.named(),
        )

    def _describe(self) -> list[Program]:
        return self._watch.describe(self._hands.holding)

    def _enforce(self) -> bool:
        """Give orders that were wished for and do not stand: after a reload, to newcomers of a container, after a
        program changed its own slice. Everything else the kernel does by itself. Whether any was given."""
        for process in self._wishes.processes():
            if not self._driver.alive(process):
                with suppress(OSError):
                    self._wishes.drop(process)
        for holder in self._watch.census.holders.values():
            wish = self._wishes.of_container(holder.container)
            if wish is not None and not self._wishes.get(holder.id).steers:
                with suppress(OSError):
                    self._wishes.steer(holder.id, wish)
        steered = [process for process in self._wishes.processes() if self._wishes.get(process).steers]
        if not steered:
            return False
        given = False
        orders = {row.pid: row for row in self._link.orders()}
        for process in steered:
            try:
                if not self._stands(process, orders.get(process.pid)):
                    self._order(process, self._wishes.get(process))
                    given = True
                    self._say("change", process.pid, f"brought to {self._wishes.get(process).text}")
                self._told.pop(process, None)
            except _FAILURES as error:
                self._complain(process, str(error))
        return given

    # -- orders -------------------------------------------------------------------------------------------------

    def _plan(self, process: ProcessId, wish: Wish) -> tuple[int | None, int]:
        """(slice in microseconds, level) of a wish; None: as found."""
        if wish.klass is not None:
            setting = classes.setting(wish.klass)
            return setting.slice_us, setting.level
        if wish.weight is not None:
            tenants = self._wishes.tenant(wish.tenant) or [process]
            rows = [row for member in tenants for row in self._watch.compute(member)]
            # one slice counts on every GPU: that of the GPU on which the tenant has most channel groups
            most = max((sum(r.gpu == gpu for r in rows) for gpu in {r.gpu for r in rows}), default=1)
            return classes.weight_slice(wish.weight, most), Level.MEDIUM
        return wish.slice_us, wish.level if wish.level is not None else Level.MEDIUM

    def _stands(self, process: ProcessId, order: SchedRow | None) -> bool:
        """Whether the kernel has the order that a process's wish asks for, and no channel group has strayed."""
        wish = self._wishes.get(process)
        slice_us, level = self._plan(process, wish)
        if order is None or (order.klass, order.slice_us or None, order.level) != (
            census.order_text(wish),
            slice_us,
            level,
        ):
            return False
        wanted = (None, slice_us)
        return slice_us is None or all(
            row.slice_us in wanted for row in self._watch.compute(process) if row.managed
        )

    def _order(self, process: ProcessId, wish: Wish) -> list[TsgChange]:
        """Give an order; what it did to each compute channel group. DriverError, OSError."""
        if not self._driver.alive(process):
            raise ProcessGone(f"PID {process.pid} has ended")
        before = {(row.client, row.handle): row for row in self._link.tsgs(process.pid) if row.compute}
        slice_us, level = self._plan(process, wish)
        if slice_us is None and any(row.managed for row in before.values()):
            self._link.del_order(process.pid)  # "as found" is what was there before any order of ours
        answer = self._link.set_order(process.pid, census.order_text(wish), slice_us, level)
        after = [row for row in self._link.tsgs(process.pid) if row.compute]
        self._watch.stale()
        if answer.tsgs_failed:
            status = self._abi.status_name(answer.status) if self._abi is not None else f"{answer.status:#x}"
            of = answer.tsgs_set + answer.tsgs_failed
            asked = f"give PID {process.pid} the order {census.order_text(wish)}"
            words = f"the driver refused it for {answer.tsgs_failed} of {of} channel group(s) ({status})"
            raise KernelRefused(asked, 0, words)
        return [self._tsg_change(row, before.get((row.client, row.handle))) for row in after]

    def _tsg_change(self, now: TsgRow, before: TsgRow | None) -> TsgChange:
        earlier = before.slice_us if before is not None else now.slice_us
        level = Level(now.level).name.lower() if now.level in tuple(Level) else None
        gpu = self._watch.census.uuid(now.gpu) if now.gpu is not None else ""
        return TsgChange(gpu, now.handle, now.slice_us or 0, level, earlier or 0)

    def set_priority(self, who: str, klass: str) -> Outcome:
        classes.setting(klass)
        return self._steer("set-priority", who, Wish(klass=klass))

    def set_weight(self, who: str, weight: int) -> Outcome:
        classes.check_weight(weight)
        selector = select.parse(who)
        tenant = f"container {selector.text}" if selector.by is select.By.CONTAINER else ""
        return self._steer("set-weight", who, Wish(weight=weight, tenant=tenant))

    def set_slice(self, who: str, slice_us: int, level: Level | None = None) -> Outcome:
        classes.check_slice(slice_us)
        return self._steer("set-slice", who, Wish(slice_us=slice_us, level=level))

    def _steer(self, verb: str, who: str, wish: Wish) -> Outcome:
        selector = select.parse(who)

        def act(process: ProcessId, program: Program | None) -> Change | Skip:
            server = mps_server(self._describe(), program) if program is not None else None
            target = server.id if server is not None else process
            self._wishes.steer(target, wish)
            if selector.by is select.By.CONTAINER:
                self._wishes.container(selector.text, wish)  # those born later get it too
            changes = self._order(target, wish)
            notes = [f"MPS: given to the server (PID {target.pid}) as one tenant"] if server is not None else []
            if not changes:
                notes.append("the kernel applies it from the first GPU context on")
            return Change(target.pid, tuple(changes), "; ".join(notes), stands=True)

        return self._verb(verb, who, act)

    def release(self, who: str) -> Outcome:
        selector = select.parse(who)
        orders = {row.pid for row in self._link.orders()}

        def act(process: ProcessId, program: Program | None) -> Change | Skip:
            ordered, touched = process.pid in orders, process in self._hands.touched
            if not (ordered or touched or self._wishes.get(process).steers):
                return Skip(process.pid, "it is not managed: nothing to put back")
            if touched:
                undone = self._hands.release(str(process.pid))
                if undone.skipped:
                    return Skip(process.pid, undone.skipped[0].reason)
            if ordered:
                self._link.del_order(process.pid)
                self._watch.stale()
            self._wishes.drop(process)
            done = "put back as it was found" if ordered or touched else "forgotten"
            if program is not None and program.limits:
                done += "; its memory limit stays (set-memory ... max takes it away)"
            return Change(process.pid, note=done)

        if selector.by is select.By.CONTAINER:
            self._wishes.container(selector.text, None)
        elif selector.text == "*":
            self._wishes.forget_containers()
        return self._verb("release", who, act)

    # -- through the program's own descriptors --------------------------------------------------------------------

    def pause(self, who: str) -> Outcome:
        return self._hands.pause(who)

    def resume(self, who: str) -> Outcome:
        return self._hands.resume(who)

    def preempt(self, who: str) -> Outcome:
        return self._hands.preempt(who)

    # -- limits and tenants ---------------------------------------------------------------------------------------

    def set_memory(self, who: str, limit: int | None, gpu: int | None = None) -> Outcome:
        started = self._clock()
        self._watch.refresh(fresh=True)
        return replace(self._limits.set(who, limit, gpu), seconds=self._clock() - started)

    def tenant_add(self, name: str) -> Outcome:
        return self._limits.add(name)

    def tenant_del(self, name: str) -> Outcome:
        return self._limits.delete(name)

    def tenant_attach(self, who: str, name: str) -> Outcome:
        lacking = self._limits.lacking(name)
        if lacking is not None:
            return outcome("tenant-attach", [lacking])
        return self._verb("tenant-attach", who, lambda process, _: self._limits.attach(process.pid, name))

    # -- the rest -----------------------------------------------------------------------------------------------

    def _verb(self, verb: str, who: str, act: Callable[[ProcessId, Program | None], Change | Skip]) -> Outcome:
        """Do something to each process that `who` names; a living PID counts without a GPU too."""
        selector = select.parse(who)
        started = self._clock()
        self._watch.refresh(fresh=True)
        chosen: list[tuple[ProcessId, Program | None]] = [
            (program.id, program) for program in self._describe() if _matches(selector, program)
        ]
        if not chosen and selector.by is select.By.PID:
            process = self._driver.find(selector.pid)
            chosen = [(process, None)] if process is not None else []
        answers: list[Change | Skip] = []
        for process, program in chosen:
            try:
                answers.append(act(process, program))
            except ProcessGone as error:
                answers.append(Skip(process.pid, f"{error}; nothing is left to do"))
            except _FAILURES as error:
                answers.append(Skip(process.pid, str(error)))
        done = outcome(verb, answers or [nobody(who, "no GPU program")], self._clock() - started)
        for change in done.changed:
            self._say(verb, change.pid, self._tell(verb, change))
        return done

    def _tell(self, verb: str, change: Change) -> str:
        """What a verb did, for its event."""
        process = next((p for p in self._wishes.processes() if p.pid == change.pid), None)
        done = "released" if verb == "release" else self._wishes.get(process).text if process else ""
        tsgs = f"{len(change.tsgs)} TSG{'s' if len(change.tsgs) > 1 else ''}" if change.tsgs else ""
        return ", ".join(text for text in (done, tsgs, change.note) if text)

    def alive(self, process: ProcessId) -> bool:
        return self._driver.alive(process)

    def doctor(self) -> list[Check]:
        return [*module.checks(self._link), *self._hands.doctor()]

    def close(self, restore: bool = True) -> None:
        if self._closed:
            return
        self._closed = True
        for process in self._wishes.processes() if restore else ():
            if self._wishes.get(process).steers and self._driver.alive(process):
                try:
                    self._link.del_order(process.pid)
                except _FAILURES as error:
                    self._say("error", process.pid, f"not put back: {error}")
        self._hands.close(restore)
        self._watch.close()
        self._link.close()


def _matches(selector: select.Selector, program: Program) -> bool:
    return selector.matches(Holder(program.id, 0, program.command, "", program.user, "", program.container, (), ()))
