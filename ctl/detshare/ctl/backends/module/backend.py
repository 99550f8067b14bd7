# SPDX-License-Identifier: Apache-2.0
"""Backend `kmod`: the kernel module sees, limits, steers and holds; here is what is asked of it, and what it told.

Limits, orders, rows of classes and buckets stand in the kernel, whoever comes and goes. Holds end with their lease,
which this backend renews for as long as it lives. What it finds, it takes up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from detshare.ctl.abi.versions import Abi, UnknownBranch, for_version
from detshare.ctl.backends.desired import Desired, DesiredState
from detshare.ctl.backends.diff import differences
from detshare.ctl.backends.module import census, lasting, messages, module, orders, rotation
from detshare.ctl.backends.module.census import Census
from detshare.ctl.backends.module.holds import Holds
from detshare.ctl.backends.module.kernel_watch import KernelWatch, mps_server
from detshare.ctl.backends.module.limits import Limits, nobody
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core import classes, select
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.backend import Backend, BadRequest
from detshare.ctl.core.driver import Driver, DriverError, ProcessGone, ProcessId
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.snapshot import (
    UNMANAGED,
    AccountKind,
    Change,
    Check,
    Event,
    Level,
    Outcome,
    Program,
    Skip,
    Snapshot,
)
from detshare.ctl.gputime import measure
from detshare.ctl.gputime.sensor import Sensor
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.link import Link

_MOST_EVENTS: Final = 10_000
_FAILURES: Final = (DriverError, OSError)


class KmodBackend(Backend):
    """Implements detshare.ctl.core.backend.Backend over detshare.ko."""

    def __init__(
        self,
        link: Link,
        driver: Driver,
        run_dir: Path,
        *,
        repair: bool = True,
        senses: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`repair`: first undo what a killed daemon of backend root left, and take up what an earlier one held.

        `senses`: read the context-switch log until close(). A command that acts once has no seconds to look back on.
        """
        self._link = link
        self._driver = driver
        self._clock = clock
        self._adopt = repair
        self._waits: dict[int, float] = {}
        """PID -> since when it waits for a turn"""
        self._desired = DesiredState(run_dir, driver.proof)
        self._wanted = orders.Wanted(self._desired)
        # what backend root may have left in the journal; it steers nothing any more
        other = DesiredState(run_dir, f"{driver.proof}-root")
        self._root = RootBackend(driver, run_dir, name=self.name, repair=repair, clock=clock, desired_state=other)
        self._abi: Abi | None
        try:
            self._abi = for_version(driver.version)
        except UnknownBranch:
            self._abi = None
        self._watch = KernelWatch(link, driver, self._abi, clock)
        self._limits = Limits(link, self._watch)
        self._holds = Holds(link, clock)
        self._orders = orders.Orders(link, self._watch, self._wanted, self._abi)
        self._events: list[Event] = []
        self._told: dict[Target, str] = {}
        self._seen: dict[ProcessId, Program] = {}
        self._sensor = Sensor(driver, clock) if senses and self._abi is not None else None
        self._closed = False

    @property
    def name(self) -> str:
        return "kmod"

    def _keep(self, events: Iterable[Event]) -> None:
        self._events += events
        del self._events[:-_MOST_EVENTS]

    def _say(self, kind: str, pid: int | None, text: str) -> None:
        self._keep([Event(time.time(), kind, pid, text)])

    def _complain(self, target: Target, text: str) -> None:
        """An error event, once until the text changes."""
        if self._told.get(target) != text:
            self._told[target] = text
            self._say("error", target.process.pid or None, f"{target.text}: {text}")

    def drain_events(self) -> Sequence[Event]:
        self._keep(self._watch.drain_events())
        self._keep(event for event in self._root.drain_events() if event.kind == "error")
        events, self._events = self._events, []
        return sorted(events, key=lambda event: event.when)

    def listen(self, tell: Callable[[Event], None], edge: Callable[[int, bool], None] | None = None) -> None:
        self._watch.listen(tell, edge)

    def attend(self, on: bool) -> None:
        self._watch.attend(on)

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, *, enforce: bool = True) -> Snapshot:
        started = self._clock()
        status = self._watch.refresh()
        if enforce and (status.mode == module.ENFORCE or status.fail_closed) and self._enforce():
            status = self._watch.refresh()
        seen = self._watch.census
        found = self._measured(self._watch.describe(), seen)
        now = {program.id: program for program in found}
        self._keep(differences(self._seen, now))
        self._seen = now
        totals = {seen.uuid(row.gpu): row.total or 0 for row in seen.gpu_rows}
        return Snapshot(
            backend=self.name,
            proof=self._driver.proof,
            driver=status.driver_version or self._driver.version,
            taken=started,
            seconds=self._clock() - started,
            gpus=tuple(replace(g, memory_bytes=g.memory_bytes or totals.get(g.uuid, 0)) for g in seen.gpus),
            programs=tuple(found),
            warnings=(*module.warnings(status), *measure.blind(self._sensor.refused() if self._sensor else {})),
            schedules=rotation.schedules(seen),
            accounts=seen.accounts(),
            tenants=seen.named(),
            lapses=status.lapses,
            closed=status.closed,
            sensor_cpu_s=self._sensor.cpu_s if self._sensor is not None else None,
            **lasting.of(seen, self._holds.renewed),
        )

    def _measured(self, found: list[Program], seen: Census) -> list[Program]:
        """The same with their places in turns, and what the context-switch log says of each."""
        times: dict[str, Mapping[int, GpuTime]] = {}
        now = self._clock()
        self._waits = {pid: self._waits.get(pid, now) for pid in rotation.waiting(seen)}
        for gpu in self._sensor.gpus if self._sensor is not None else ():
            assert self._sensor is not None
            self._sensor.poll(gpu)
            times[gpu] = self._sensor.times(gpu, {pid: now - since for pid, since in self._waits.items()})
        return [replace(measure.measured(each, times), places=rotation.places(seen, each.id)) for each in found]

    def _enforce(self) -> bool:
        """Keep what was asked for: rows and orders that a reload took away, newcomers of a container, leases.
        Everything else the kernel does by itself. Whether anything was changed."""
        seen = self._watch.census
        written = orders.write_missing(self._link, seen.classes)
        if self._adopt:
            self._adopt = False
            held = [(target, row) for row in seen.holds if (target := seen.target(row)) is not None]
            for target in self._holds.adopt(held):
                self._say("hold", target.process.pid or None, f"{target.text}: held by an earlier daemon, goes on")
        for target, why in self._holds.keep():
            self._complain(target, f"its hold ended: {why}")
        for process in self._desired.processes():
            if not self._driver.alive(process):
                with suppress(OSError):
                    self._desired.drop(process)
        for opener in seen.openers.values():
            desired = self._desired.born(opener)
            if desired is not None and not self._desired.get(opener.id).steers:
                with suppress(OSError):
                    self._desired.steer(opener.id, desired)
        paths = self._wanted.living()
        given = bool(written)
        for target, desired in self._wanted.all(paths, [row.name for row in seen.tenants]).items():
            try:
                if not self._orders.stands(target, desired):
                    self._orders.give(target, desired)
                    given = True
                    self._say("change", target.process.pid or None, f"{target.text} brought to {desired.text}")
                self._told.pop(target, None)
            except _FAILURES as error:
                self._complain(target, str(error))
        return given

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        return {
            "set-priority": self.set_priority,
            "set-weight": self.set_weight,
            "set-slice": self.set_slice,
            "set-ceiling": self.set_ceiling,
            "set-bucket": self.set_bucket,
            "set-class": self.set_class,
            "set-memory": self.set_memory,
            "tenant-add": self.tenant_add,
            "tenant-attach": self.tenant_attach,
            "tenant-del": self.tenant_del,
            "pause": self.pause,
            "hold": self.hold,
            "resume": self.resume,
            "preempt": self.preempt,
            "release": self.release,
        }

    # -- orders -------------------------------------------------------------------------------------------------

    def set_priority(
        self, who: str, klass: str, weight: int | None = None, floor: float | None = None, tenant: str = ""
    ) -> Outcome:
        if floor is not None or tenant:
            raise BadRequest("with detshare.ko a floor is set by set-class CLASS --floor, a tenant by tenant attach")
        classes.check_name(klass)
        if klass not in classes.CLASSES or weight is not None:
            orders.check_class(self._link.classes(), klass, turns=weight is not None)
        return self._steer("set-priority", who, Desired(klass=klass, weight=weight))

    def set_weight(self, who: str, weight: int) -> Outcome:
        return self._steer("set-weight", who, Desired(weight=weight))

    def set_slice(self, who: str, slice_us: int, level: Level | None = None) -> Outcome:
        return self._steer("set-slice", who, Desired(slice_us=slice_us, level=level))

    def set_ceiling(self, who: str, percent: int) -> Outcome:
        return self._steer("set-ceiling", who, Desired(ceiling=percent))

    def _steer(self, verb: str, who: str, change: Desired) -> Outcome:
        def act(target: Target, program: Program | None) -> Change | Skip:
            server = mps_server(self._watch.describe(), program) if program is not None else None
            if server is not None:
                target = Target(AccountKind.PID, str(server.id.pid), server.id)
            desired = orders.merged(self._orders.desired(target), change)
            if not desired.steers:
                return self._forget_order(target)
            self._wanted.put(target, desired)
            if desired.klass in classes.CLASSES:
                orders.write_missing(self._link, self._link.classes())
            changes = self._orders.give(target, desired)
            notes = [f"MPS: given to the server (PID {server.id.pid}) as one tenant"] if server is not None else []
            if target.kind is not AccountKind.PID:
                notes.append(f"{target.text}: {desired.text}, for all who belong to it at any time")
            elif not changes:
                notes.append("the kernel applies it from the first GPU context on")
            return Change(target.process.pid, tuple(changes), "; ".join(notes), stands=True)

        return self._verb(verb, who, act)

    def _forget_order(self, target: Target) -> Change:
        self._wanted.drop(target)
        with suppress(KernelRefused):
            self._link.del_order(target)
        return Change(target.process.pid, note=f"{target.text}: nothing is ordered any more", stands=True)

    def release(self, who: str) -> Outcome:
        everybody = who.strip() == "*"

        def act(target: Target, program: Program | None) -> Change | Skip:
            pid = target.process.pid
            done = []
            if pid and target.process in self._root.touched:
                undone = self._root.release(str(pid))
                if undone.skipped:
                    return Skip(pid, undone.skipped[0].reason)
                done.append("put back as it was found")
            if self._orders.standing(target) is not None:
                self._link.del_order(target)
                done.append("put back as it was found")
            if self._standing(target, self._link.holds()):
                self._holds.let_go(target)
                done.append("runs again")
            if self._standing(target, self._link.buckets()):
                self._link.del_bucket(target)
                done.append("its bucket is gone")
            if self._wanted.get(target).steers:
                done = done or ["forgotten"]
            self._wanted.drop(target)
            if pid:
                self._desired.leave(target.process)
            self._watch.stale()
            if not done:
                return Skip(pid, UNMANAGED)
            if program is not None and program.limits:
                done.append("its memory limit stays (set-memory ... max takes it away)")
            text = "; ".join(dict.fromkeys(done))
            return Change(pid, note=text if pid else f"{target.text}: {text}")

        if not everybody:
            return self._verb("release", who, act)
        # a pattern names processes only; "*" means everything that anybody asked for
        self._wanted.forget_accounts()
        self._watch.refresh(fresh=True)
        seen = self._watch.census
        found = [seen.target(row) for rows in (seen.orders, seen.holds, seen.buckets) for row in rows]
        extra = [target for target in found if target is not None and target.kind is not AccountKind.PID]
        return self._verb("release", who, act, extra)

    def stand(self, rules: Mapping[str, str]) -> None:
        for klass in rules.values():
            classes.setting(klass)
        self._desired.stand(rules)

    def _standing(self, target: Target, rows: Iterable[Any]) -> bool:
        """Whether one of these rows is the target's."""
        return any(census.is_of(row, target) for row in rows)

    # -- holding ------------------------------------------------------------------------------------------------

    def pause(self, who: str) -> Outcome:
        return self._hold("pause", who, pause=True, lease_s=None)

    def hold(self, who: str, lease_s: int | None = None) -> Outcome:
        return self._hold("hold", who, pause=False, lease_s=lease_s)

    def _hold(self, verb: str, who: str, *, pause: bool, lease_s: int | None) -> Outcome:
        def act(target: Target, program: Program | None) -> Change | Skip:
            row = self._holds.hold(target, gate=True, pause=pause, lease_s=lease_s)
            return Change(target.process.pid, note=messages.held(target, row, lease_s), stands=True)

        return self._verb(verb, who, act)

    def resume(self, who: str, lazy: bool = False) -> Outcome:  # memory is the library's
        def act(target: Target, program: Program | None) -> Change | Skip:
            if self._standing(target, self._link.holds()):
                row = self._holds.let_go(target)
                return Change(target.process.pid, note=messages.let_go(target, row))
            why = messages.not_held(target, program, self._watch.census)
            return Skip(target.process.pid, why)

        return self._verb("resume", who, act)

    def preempt(self, who: str) -> Outcome:
        def act(target: Target, program: Program | None) -> Change | Skip:
            row = self._link.preempt(target)
            wrong = orders.refused(self._abi, f"preempt {target.text}", row)
            if wrong is not None:
                raise wrong
            if not row.tsgs_set:
                return Skip(target.process.pid, "it has no compute TSG, so there is nothing to take off the GPU")
            return Change(target.process.pid, note=f"{row.tsgs_set} channel group(s) taken off the GPU once")

        return self._verb("preempt", who, act)

    # -- buckets and classes --------------------------------------------------------------------------------------

    def set_bucket(self, who: str, rate_us: int | None = None, burst_us: int | None = None) -> Outcome:
        def act(target: Target, program: Program | None) -> Change | Skip:
            pid = target.process.pid
            if rate_us is not None:
                row = self._link.set_bucket(target, rate_us, burst_us)
                return Change(pid, note=f"{target.text}: {messages.bucket(row)}", stands=True)
            if not self._standing(target, self._link.buckets()):
                return Skip(pid, f"{target.text} has no bucket")
            self._link.del_bucket(target)
            return Change(pid, note=f"{target.text}: no bucket any more", stands=True)

        return self._verb("set-bucket", who, act)

    def set_class(self, klass: str, change: Mapping[str, object] | None) -> Outcome:
        started = self._clock()
        where = ""
        if change is not None and isinstance(number := change.get("gpu"), int):
            self._watch.refresh(fresh=True)
            change, where = {**change, "gpu": self._watch.census.instance(number)}, f" on GPU {number}"
        row = orders.set_class(self._link, klass, change)
        text = f"class {klass}{where}" + (" is forgotten" if row is None else f": {messages.row(row)}")
        self._say("set-class", None, text)
        return Outcome("set-class", (Change(0, note=text, stands=True),), seconds=self._clock() - started)

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
            return Outcome.of("tenant-attach", [lacking])
        selector = select.parse(who)
        self._watch.refresh(fresh=True)
        # a container id means its programs here, not its cgroup
        chosen = [
            Target(AccountKind.PID, str(opener.id.pid), opener.id)
            for opener in self._watch.census.openers.values()
            if selector.matches(opener)
        ]
        chosen = chosen or [t for t in self._watch.targets(who) if t.kind is AccountKind.PID]
        return self._each("tenant-attach", who, chosen, lambda target, _: self._limits.attach(target.process.pid, name))

    # -- the rest -----------------------------------------------------------------------------------------------

    def _verb(
        self,
        verb: str,
        who: str,
        act: Callable[[Target, Program | None], Change | Skip],
        extra: Sequence[Target] = (),
    ) -> Outcome:
        """Do something to each account that `who` names; a living PID counts without a GPU too."""
        self._watch.refresh(fresh=True)
        return self._each(verb, who, list(dict.fromkeys([*self._watch.targets(who), *extra])), act)

    def _each(
        self, verb: str, who: str, targets: Sequence[Target], act: Callable[[Target, Program | None], Change | Skip]
    ) -> Outcome:
        started = self._clock()
        programs = {program.id: program for program in self._watch.describe()}
        answers: list[Change | Skip] = []
        for target in targets:
            try:
                if target.kind is AccountKind.PID and not self._is_there(target.process):
                    raise ProcessGone(f"PID {target.process.pid} has ended")
                answers.append(act(target, programs.get(target.process)))
            except ProcessGone as error:
                answers.append(Skip(target.process.pid, f"{error}; nothing is left to do"))
            except _FAILURES as error:
                answers.append(Skip(target.process.pid, str(error)))
        done = Outcome.of(verb, answers or [nobody(who, "no GPU program")], self._clock() - started)
        for change in done.changed:
            self._say(verb, change.pid or None, self._tell(verb, change))
        return done

    def _is_there(self, process: ProcessId) -> bool:
        """Whether it lives, or something stands for who goes on with its clients."""
        return self._driver.alive(process) or self._watch.census.steered(process.pid) == process

    def _tell(self, verb: str, change: Change) -> str:
        """What a verb did, for its event."""
        process = next((p for p in self._desired.processes() if p.pid == change.pid), None)
        desired = self._desired.get(process) if process is not None else Desired()
        done = "released" if verb == "release" else desired.text if verb.startswith("set-") and desired.steers else ""
        tsgs = f"{len(change.tsgs)} TSG{'s' if len(change.tsgs) > 1 else ''}" if change.tsgs else ""
        return ", ".join(text for text in (done, tsgs, change.note) if text)

    def alive(self, process: ProcessId) -> bool:
        return self._driver.alive(process)

    def doctor(self) -> list[Check]:
        found = [*module.checks(self._link), *self._root.doctor()]
        return found if self._sensor is None else [*found, measure.check(self._sensor)]

    def close(self, restore: bool = True) -> None:
        if self._closed:
            return
        self._closed = True
        if restore:
            for problem in self._holds.close():
                self._say("error", None, f"not let go, its lease ends by itself: {problem}")
            self._take_back()
        if self._sensor is not None:
            self._sensor.close()
        self._root.close(restore)
        self._watch.close()
        self._link.close()

    def _take_back(self) -> None:
        """Orders that were asked for here; rows of classes, buckets and limits stay."""
        paths = self._wanted.living()
        tenants = [row.name for row in self._watch.census.tenants]
        for target in self._wanted.all(paths, tenants):
            if target.kind is AccountKind.PID and not self._driver.alive(target.process):
                continue
            try:
                self._link.del_order(target)
            except _FAILURES as error:
                self._say("error", target.process.pid or None, f"not put back: {error}")
