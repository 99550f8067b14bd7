# SPDX-License-Identifier: Apache-2.0
"""What backend `root` does by itself: looks, brings programs to what was asked for, gives turns, puts back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from detshare.ctl.abi.versions import Abi, UnknownBranch, branches, for_version
from detshare.ctl.backends.desired import DesiredState
from detshare.ctl.backends.diff import differences
from detshare.ctl.backends.root import doctor
from detshare.ctl.backends.root.actuator import Actuator, Plan, plan_of
from detshare.ctl.backends.root.adopt import Adopter
from detshare.ctl.backends.root.guardian import recover
from detshare.ctl.backends.root.journal import Journal, locked
from detshare.ctl.backends.root.turns.engine import Turns
from detshare.ctl.backends.root.turns.floors import Floors
from detshare.ctl.backends.root.turns.hand import Hand
from detshare.ctl.backends.root.turns.members import apart_of, cast, floor_of, rank_of
from detshare.ctl.backends.root.turns.tenancy import Tenancy
from detshare.ctl.backends.root.unlogged import Unlogged
from detshare.ctl.backends.root.watch import Watch
from detshare.ctl.core import classes
from detshare.ctl.core.backend import Backend
from detshare.ctl.core.driver import Driver, DriverError, ProcessGone, ProcessId
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.snapshot import (
    Check,
    Event,
    Kind,
    Level,
    Program,
    Snapshot,
    TsgChange,
)
from detshare.ctl.gputime import measure
from detshare.ctl.gputime.sensor import Sensor
from detshare.ctl.rm.client import RmError
from detshare.ctl.rm.kernel import KernelDriver
from detshare.ebpf.errors import EbpfError

if TYPE_CHECKING:
    from detshare.ctl.backends.root.early_apply import EarlyApply

_MOST_EVENTS = 10_000
STILL_S = 0.9
"""while nothing changes in the driver one look in so long is enough: a program may set its slice itself"""
STALLED_S = 1.0
"""a managed program that has work and made no progress for so long is warned of"""
FAILURES = (RmError, DriverError, OSError)


class Looking(Backend):
    """Backend `root` without its verbs."""

    def __init__(
        self,
        driver: Driver,
        run_dir: Path,
        *,
        name: str = "root",
        repair: bool = True,
        rotates: bool = False,
        clock: Callable[[], float] = time.monotonic,
        desired_state: DesiredState | None = None,
    ) -> None:
        """`repair`: first undo what a killed daemon left; a one-shot command leaves that standing.

        `rotates`: read the context-switch log and give the background its turns, until close(). A command that acts
        once cannot: it chooses slices that cannot lock two programs up.

        `desired_state`: others than the run directory's; backend kmod has those to itself.
        """
        self._name = name
        self._driver = driver
        self._run_dir = run_dir
        self._clock = clock
        self._events: list[Event] = []
        self._told: dict[ProcessId, str] = {}
        self._problem = ""
        self._abi: Abi | None
        try:
            self._abi = for_version(driver.version)
        except UnknownBranch as error:
            self._abi, self._problem = None, str(error)
        if repair and self._abi is not None:
            for problem in recover(run_dir, driver):
                self._say("error", None, f"left by an earlier daemon and not put back: {problem}")
        with locked(run_dir) if run_dir.exists() else nullcontext():  # a command that asks makes no folder
            self._journal = Journal(run_dir, driver.proof)
        self._desired = desired_state if desired_state is not None else DesiredState(run_dir, driver.proof)
        self._adopter = Adopter(driver, self._abi, clock) if self._abi is not None else None
        self._actuator = Actuator(driver, self._abi, self._journal) if self._abi is not None else None
        self._watch = Watch(driver, self._adopter, self._problem, clock)
        self._unlogged = Unlogged()
        self._seen: dict[ProcessId, Program] = {}
        self._tenancy = Tenancy()
        self._floors = Floors(run_dir, driver.proof)
        self._sensor: Sensor | None = None
        self._turns: Turns | None = None
        if rotates and self._abi is not None and self._actuator is not None and self._adopter is not None:
            self._sensor = Sensor(driver, clock)
            hand = Hand(driver, self._abi, self._journal)
            self._turns = Turns(self._sensor, hand, self._retune, self._adopter.reread, clock)
            self._turns.start()
        self._looked_at = float("-inf")
        self._closed = False
        self._early: EarlyApply | None = None

    @property
    def name(self) -> str:
        return self._name

    def _keep(self, event: Event) -> None:
        del self._events[: len(self._events) - _MOST_EVENTS + 1]
        self._events.append(event)

    def _say(self, kind: str, process: ProcessId | None, text: str, **data: object) -> None:
        self._keep(Event(time.time(), kind, process.pid if process else None, text, dict(data)))

    def _complain(self, process: ProcessId, text: str) -> None:
        """An error event, once until the text changes."""
        if self._told.get(process) != text:
            self._told[process] = text
            self._say("error", process, text)

    def drain_events(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    @property
    def touched(self) -> frozenset[ProcessId]:
        """Processes of which something is to be put back."""
        return frozenset(self._journal.processes())

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, *, enforce: bool = True) -> Snapshot:
        started = self._clock()
        self.apply_early()
        self._watch.refresh()
        if enforce and self._abi is not None:
            self._tidy()
        found = self._describe()
        if enforce and self._abi is not None:
            changed = [self._enforce(program) for program in found]
            found = self._describe() if any(changed) else found
        if enforce and self._turns is not None:
            self._rotate(found)
        found = self._measured(found)
        self._compare(found)
        self._looked_at = self._clock()
        return Snapshot(
            backend=self.name,
            proof=self._driver.proof,
            driver=self._driver.version,
            taken=started,
            seconds=self._clock() - started,
            gpus=tuple(gpus := self._driver.gpus()),
            programs=tuple(found),
            floors=self._floors.rows(gpus),
            warnings=self._warnings(found),
            schedules=self._turns.schedules() if self._turns is not None else (),
            sensor_cpu_s=self._sensor.cpu_s if self._sensor is not None else None,
        )

    def stirs(self) -> bool:
        waits = self._events or self._told or (self._turns is not None and self._turns.problems)
        return bool(waits) or self._clock() - self._looked_at >= STILL_S or self._watch.stirs()

    def _poll(self) -> None:
        """Read the logs that the thread of the turns does not; of those that it reads it needs each run that ends."""
        if self._sensor is None:
            return
        rotated = self._turns.gpus() if self._turns is not None and self._turns.running else frozenset()
        for gpu in self._sensor.gpus:
            if gpu not in rotated:
                self._sensor.poll(gpu)

    def _warnings(self, found: Sequence[Program]) -> tuple[str, ...]:
        if self._abi is None:
            return (f"read-only: {self._problem}",)
        refused = self._sensor.refused() if self._sensor is not None else {}
        stalled = [
            f"PID {p.id.pid} ({p.command[:40]}) has work and made no progress for {t.stalled_s:.1f} s: see "
            f"detshare-ctl why {p.id.pid}"
            for p in found
            for t in p.gpu_time
            if t.stalled_s >= STALLED_S and (p.klass is not None or p.weight is not None)
        ]
        classed = {gpu for p in found if p.klass is not None for gpu in p.gpus}
        cut = [
            f"GPU {gpu.minor} is cut by MIG: classes are slices and levels there, nobody has turns"
            for gpu in self._driver.gpus()
            if gpu.mig is not None and gpu.uuid in classed
        ]
        return (*measure.blind(refused), *cut, *stalled)

    def _rotate(self, found: Sequence[Program]) -> None:
        """Tell the turns who takes part."""
        assert self._turns is not None
        openers = {h.id: h for h in self._watch.openers}
        heads = {p.id: self._watch.head(p.id) for p in found}
        desired = {process: self._desired.get(head) for process, head in heads.items()}
        tenants = {p: self._tenancy.of(openers[heads[p]], each.tenant) for p, each in desired.items() if each.steers}
        made = cast(found, desired, tenants, self._floors.table(), self._floors.apart)
        cut = {gpu.uuid for gpu in self._driver.gpus() if gpu.mig is not None}  # programs run at once there
        self._turns.update(replace(made, background=tuple(m for m in made.background if m.gpu not in cut)))
        problems, self._turns.problems = self._turns.problems, []
        for process, problem in problems:
            self._complain(process, f"turns: {problem}")

    def _measured(self, found: list[Program]) -> list[Program]:
        """The same with what the context-switch log says of each."""
        if self._sensor is None:
            return found
        self._poll()
        wanting = {gpu: self._turns.wanting(gpu) if self._turns else {} for gpu in self._sensor.gpus}
        heads = {process.pid: self._watch.head(process).pid for process in self._watch.groups}
        times = {gpu: measure.of_groups(self._sensor.times(gpu, wanting[gpu]), heads) for gpu in self._sensor.gpus}
        sure = [gpu.uuid for gpu in self._driver.gpus() if gpu.mig is None and self._sensor.sure(gpu.uuid)]
        filled = self._unlogged.fill(found, times, sure, self._watch.shares)
        return [self._measure(program, times) for program in filled]

    def _measure(self, program: Program, times: Mapping[str, Mapping[int, GpuTime]]) -> Program:
        places = self._turns.places(program.id) if self._turns is not None else ()
        desired = self._desired.get(program.id)
        measured = measure.measured(program, times)
        if rank_of(desired) is None:
            return replace(measured, places=places)
        floor, apart = floor_of(desired, self._floors.table()), apart_of(desired, self._floors.apart)
        floors = {gpu: apart.get(gpu, floor) for gpu in program.gpus}
        differ = len(set(floors.values())) > 1
        least = min(floors.values(), default=floor)
        return replace(measured, places=places, floor=least, floors=floors if differ else {})

    def _retune(self, process: ProcessId, gpu: str, slice_us: int) -> None:
        """Another slice for a program that has a turn; in the thread of the turns."""
        adoption = self._watch.adoptions.get(process)
        for tsg in adoption.tsgs if adoption is not None else ():
            if tsg.kind is Kind.COMPUTE and tsg.gpu == gpu and self._watch.owner.get(tsg.client) == process:
                self._act.retune(process, tsg, slice_us)

    def _describe(self) -> list[Program]:
        def level(process: ProcessId, tsg: object) -> Level | None:
            return None

        return self._watch.describe(self._desired, self._journal, self._actuator.level if self._actuator else level)

    def _compare(self, found: list[Program]) -> None:
        """Events from the difference to the last look."""
        now = {program.id: program for program in found}
        for event in differences(self._seen, now):
            self._keep(event)
        self._seen = now
        self._told = {p: t for p, t in self._told.items() if p in now}

    # -- desired state -------------------------------------------------------------------------------------------------

    @property
    def _act(self) -> Actuator:
        """The actuator; only where the driver's branch is known."""
        assert self._actuator is not None
        return self._actuator

    def _tidy(self) -> None:
        """Take up what ended, was inherited by a fork's child, or is of a container or job with a desired state."""
        adoptions = self._watch.adoptions
        for process in set(self._journal.processes()) - adoptions.keys():
            if self._watch.swept and not self._driver.alive(process):
                self._bury(process)
        for process in set(self._desired.processes()) - adoptions.keys():
            if not self._driver.alive(process):
                with suppress(OSError):
                    self._desired.drop(process)
        with suppress(OSError):
            self._desired.end_jobs(self._driver.alive)
        for process, adoption in adoptions.items():
            if adoption.understood:
                with suppress(OSError):
                    self._act.prune(process, adoption.tsgs)
        for opener in self._watch.openers:
            # what a command gets is for the program's own TSG, not for a server's that others are in too
            alone = self._watch.head(opener.id) == opener.id
            desired = self._desired.born(opener) if alone else self._desired.of_container(opener.container)
            if desired is not None and not self._desired.get(opener.id).steers:
                with suppress(OSError):
                    self._desired.steer(opener.id, desired)

    def _bury(self, process: ProcessId) -> None:
        """A process ended: what a fork's child still holds of it goes to the child, the rest is forgotten."""
        facts = [p.client for p in self._journal.paused.get(process, ())]
        facts += [client for owner, client, _ in self._journal.slices if owner == process]
        try:
            for heir, fds in self._watch.heirs(process, set(facts)).items():
                self._journal.rehome(process, heir, fds)
            self._act.forget(process)
        except OSError as error:
            self._complain(process, f"ended, but the journal cannot say so: {error}")

    def _plan(self, process: ProcessId, gpu: str) -> Plan | None:
        desired = self._desired.get(process)
        slice_us = self._turns.slice_us(process, gpu) if self._turns is not None else None
        if slice_us is not None:  # between turns, too: it is off then
            return Plan(slice_us, Level.LOW)
        if desired.weight is None or desired.klass is not None:
            return plan_of(desired, rivals=self._has_rivals(process, gpu))
        tenants = self._desired.tenant(desired.tenant) or [process]
        return Plan(classes.weight_slice(desired.weight, self._watch.compute_tsgs(tenants, gpu)), Level.MEDIUM)

    def _has_rivals(self, process: ProcessId, gpu: str) -> bool:
        """Whether another program whose class has a short slice computes on a GPU: nobody gives them turns yet."""
        for other, adoption in self._watch.adoptions.items():
            klass = self._desired.get(other).klass
            short = classes.setting(klass).slice_us if klass in classes.CLASSES else None
            rivals = other != process and short is not None and short < classes.RIVAL_US
            if rivals and any(t.kind is Kind.COMPUTE and t.gpu == gpu for t in adoption.tsgs):
                return True
        return False

    def _enforce(self, program: Program) -> bool:
        """Bring a program to what was asked for it: new contexts, and those that changed themselves. Whether it may be
        described otherwise now."""
        steered, adoption = self._desired.get(program.id).steers, self._watch.adoptions.get(program.id)
        paused = program.id in self._journal.paused
        try:
            if self._to_server(program):
                return steered
            desired = self._desired.get(program.id)
            drifted = [c for c in self._steer(program) if c.before_us != c.slice_us]
            if drifted:
                self._say("change", program.id, f"{len(drifted)} TSG(s) brought to {desired.text}")
            if desired.paused and self._act.pausable(program.id, program.tsgs):
                self._act.pause(program.id, program.tsgs)
            elif not desired.paused and program.id in self._journal.paused:
                self._act.resume(program.id)
                self._admit(program.id)
                self._say("resume", program.id, "was left paused by a command that was killed; runs again")
            self._told.pop(program.id, None)
        except ProcessGone:
            return True
        except FAILURES as error:
            if self._adopter is not None:
                self._adopter.reread(program.id)
            self._complain(program.id, str(error))
            return True
        same = self._watch.adoptions.get(program.id) is adoption and (program.id in self._journal.paused) == paused
        return not same or any(self._act.level(program.id, t) is not t.level for t in program.tsgs)

    def _to_server(self, program: Program) -> bool:
        """Whether `program` runs in an MPS server's TSG; what is asked of it becomes the server's if nothing is."""
        server = self._watch.head(program.id)
        if server == program.id:
            return False
        desired = self._desired.get(program.id)
        if desired.steers:
            if not self._desired.get(server).steers:
                self._desired.steer(server, desired)
            self._desired.drop(program.id)
            self._say("change", program.id, f"MPS: {desired.text} counts for the server, PID {server.pid}")
        return True

    def _steer(self, program: Program) -> list[TsgChange]:
        """Apply the desired state to the program's compute TSGs. RmError, DriverError, OSError."""
        changes: list[TsgChange] = []
        for gpu in dict.fromkeys(t.gpu for t in program.compute):
            plan = self._plan(program.id, gpu)
            if plan is not None:
                try:
                    changes += self._act.apply(program.id, [t for t in program.compute if t.gpu == gpu], plan)
                finally:
                    self._watch.took(program.id, self._act.current(program.id))
        return changes

    def _admit(self, process: ProcessId) -> None:
        if self._turns is not None:
            self._turns.admit(process)

    # -- the rest -----------------------------------------------------------------------------------------------

    def alive(self, process: ProcessId) -> bool:
        return self._driver.alive(process)

    def wake_by(self, wake: Callable[[], None]) -> None:
        if self._adopter is None or self._abi is None or not isinstance(self._driver, KernelDriver):
            return
        from detshare.ctl.backends.root.birth_observer import BirthObserver
        from detshare.ctl.backends.root.early_apply import EarlyApply

        try:
            births = BirthObserver(self._abi, wake)
            self._early = EarlyApply(births, self._driver, self._adopter, self._act, self._desired)
        except EbpfError as error:
            self._say("error", None, f"new contexts are found by looking only: {error}")

    def apply_early(self) -> None:
        for process, done in self._early.apply_early() if self._early is not None and not self._closed else ():
            self._say("change", process, done)

    def stand(self, rules: Mapping[str, str]) -> None:
        for klass in rules.values():
            classes.setting(klass)
        self._desired.stand(rules)

    def doctor(self) -> list[Check]:
        found = doctor.checks(self._driver, self._abi, branches(), os.geteuid(), self._run_dir, self.name)
        if self._sensor is not None:
            found.append(self._rotation_check(self._sensor))
        return found if self._early is None else [*found, self._early.doctor()]

    def _rotation_check(self, sensor: Sensor) -> Check:
        refused = sensor.refused()
        if refused:
            why = "; ".join(f"{gpu[:12]}: {text}" for gpu, text in refused.items())
            return Check("turns", None, f"by time alone, the context-switch log is refused: {why}", "run it as root")
        turns = self._turns.turns if self._turns is not None else 0
        text = f"{turns} so far; reading the context-switch log takes {sensor.cpu_share:.2%} of a processor"
        return Check("turns", self._turns is not None and self._turns.running, text)

    def close(self, restore: bool = True) -> None:
        if self._closed:
            return
        self._closed = True
        if self._early is not None:
            self._early.close()
        if self._turns is not None:
            self._turns.close()
            for process, problem in self._turns.problems:
                self._say("error", process, problem)
        if self._sensor is not None:
            self._sensor.close()
        if restore and self._actuator is not None:
            with locked(self._run_dir):
                for process in self._journal.processes():
                    for problem in self._actuator.release(process):
                        self._say("error", process, f"not put back: {problem}")
                if not self._journal.processes():
                    with suppress(OSError):
                        self._journal.clear()
        close = getattr(self._driver, "close", None)
        if close is not None:
            with suppress(OSError):
                close()
