# SPDX-License-Identifier: Apache-2.0
"""Backend `root`: steers any living program through its own descriptors, on the stock driver.

It needs root and nothing else; it holds no hostile program: a tenant may set its own slices back (they are put back
at the next look, and the operator is told), and it limits no memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from detshare.ctl import classes, doctor, programs, select
from detshare.ctl.adopt import Adopter, Adoption
from detshare.ctl.guardian import recover
from detshare.ctl.journal import Journal, locked
from detshare.ctl.rm.abi import Abi, UnknownBranch, branches, for_version
from detshare.ctl.rm.client import RmError
from detshare.ctl.rm.driver import Driver, DriverError, Holder, ProcessGone, ProcessId, Usage
from detshare.ctl.snapshot import (
    Change,
    Check,
    Event,
    Level,
    Outcome,
    Program,
    Skip,
    Snapshot,
    State,
    TsgChange,
)
from detshare.ctl.steward import Plan, Steward
from detshare.ctl.wishes import Wish, Wishes

SWEEP_S = 1.0
"""without a change in the driver, /proc is swept this often"""
USAGE_S = 1.0
_MOST_EVENTS = 10_000


@dataclass(slots=True)
class _View:
    """What the last look found."""

    holders: list[Holder]
    adoptions: dict[ProcessId, Adoption]
    owner: dict[int, ProcessId]
    groups: dict[ProcessId, programs.MpsGroup]


class RootBackend:
    """Implements detshare.ctl.backends.base.Backend over any Driver."""

    def __init__(
        self,
        driver: Driver,
        run_dir: Path,
        *,
        name: str = "root",
        repair: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`repair`: first undo what a killed daemon left; a one-shot command leaves that standing."""
        self.name = name
        self._driver = driver
        self._run_dir = run_dir
        self._clock = clock
        self._events: list[Event] = []
        self._abi: Abi | None
        try:
            self._abi = for_version(driver.version)
        except UnknownBranch as error:
            self._abi = None
            self._branch_problem = str(error)
        if repair and self._abi is not None:
            for problem in recover(run_dir, driver):
                self._say("error", None, f"left by an earlier daemon and not put back: {problem}")
        with locked(run_dir):
            self._journal = Journal(run_dir, driver.proof)
        self._wishes = Wishes(run_dir)
        if self._abi is not None:
            self._adopter = Adopter(driver, self._abi, clock)
            self._steward = Steward(driver, self._abi, self._journal)
        self._view = _View([], {}, {}, {})
        self._seen: dict[ProcessId, Program] = {}
        self._swept: tuple[float, int] = (float("-inf"), -1)
        self._usage: tuple[float, Usage] = (float("-inf"), Usage())
        self._closed = False

    def _say(self, kind: str, process: ProcessId | None, text: str, **data: object) -> None:
        del self._events[: len(self._events) - _MOST_EVENTS + 1]
        self._events.append(Event(time.time(), kind, process.pid if process else None, text, dict(data)))

    def drain_events(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self) -> Snapshot:
        started = self._clock()
        found = self._refresh()
        self._enforce(found)
        found = self._describe()
        self._compare(found)
        return Snapshot(
            backend=self.name,
            proof=self._driver.proof,
            driver=self._driver.version,
            taken=started,
            seconds=self._clock() - started,
            gpus=tuple(self._driver.gpus()),
            programs=tuple(found),
            warnings=() if self._abi is not None else (f"read-only: {self._branch_problem}",),
        )

    def _refresh(self, fresh: bool = False) -> list[Program]:
        """Sweep /proc where something may have changed, adopt, and describe."""
        now = self._clock()
        if self._abi is None:
            holders = self._driver.holders()
            adoptions = {h.id: Adoption(understood=False, notes=(self._branch_problem,)) for h in holders}
            self._view = _View(holders, adoptions, {}, {})
            return self._describe()
        resources = self._driver.resource_count()
        holders = self._view.holders
        if fresh or resources != self._swept[1] or now - self._swept[0] >= SWEEP_S:
            holders = self._driver.holders()
            self._swept = (now, resources)
        else:
            holders = [h for h in holders if self._driver.alive(h.id)]
        adoptions = self._adopter.refresh(holders, resources)
        holders = [h for h in holders if h.id in adoptions]
        owner = programs.owners(holders, adoptions)
        self._view = _View(holders, adoptions, owner, programs.mps_groups(holders, adoptions, owner))
        for process in set(self._wishes.processes()) - adoptions.keys():
            if not self._driver.alive(process):
                self._wishes.drop(process)
        for process in set(self._journal.processes()) - adoptions.keys():
            if not self._driver.alive(process):
                self._steward.forget(process)
        return self._describe()

    def _describe(self) -> list[Program]:
        now = self._clock()
        if now - self._usage[0] >= USAGE_S:
            self._usage = (now, self._driver.usage())
        view = self._view
        uuids = {gpu.minor: gpu.uuid for gpu in self._driver.gpus()}
        found = []
        for holder in view.holders:
            adoption = view.adoptions[holder.id]
            program = programs.build(
                holder,
                adoption,
                owner=view.owner,
                group=view.groups.get(holder.id),
                wish=self._wishes.get(holder.id),
                usage=self._usage[1],
                uuids=uuids,
                level=self._steward.level if self._abi is not None else lambda _process, _tsg: None,
            )
            found.append(program if self._abi is not None else replace(program, state=State.READ_ONLY))
        return found

    def _compare(self, found: list[Program]) -> None:
        """Events from the difference to the last look."""
        now = {program.id: program for program in found}
        for process in self._seen.keys() - now.keys():
            self._say("detach", process, f"ended or let go of the GPU: {self._seen[process].command}")
        for process, program in now.items():
            before = self._seen.get(process)
            if before is None:
                self._say("attach", process, program.command, state=program.state.value)
            known = {t.handle for t in before.compute} if before else set()
            fresh = {t.handle for t in program.compute} - known
            if fresh:
                self._say("context", process, f"{len(program.compute)} compute TSG(s)", adopted_ms=program.adopted_ms)
        self._seen = now

    # -- wishes -------------------------------------------------------------------------------------------------

    def _plan(self, program: Program, gpu: str) -> Plan | None:
        wish = self._wishes.get(program.id)
        if wish.klass is not None:
            setting = classes.setting(wish.klass)
            return Plan(setting.slice_us, setting.level)
        if wish.weight is not None:
            tenants = self._wishes.tenant(wish.tenant) or [program.id]
            adoptions = self._view.adoptions
            tsgs = sum(
                t.kind.value == "compute" and t.gpu == gpu for p in tenants if p in adoptions for t in adoptions[p].tsgs
            )
            return Plan(classes.weight_slice(wish.weight, tsgs), Level.MEDIUM)
        if wish.slice_us is not None:
            return Plan(wish.slice_us, wish.level if wish.level is not None else Level.MEDIUM)
        return None

    def _enforce(self, found: list[Program]) -> None:
        """Bring every program to what was wished for it: new contexts, and those that changed themselves."""
        for program in found:
            wish = self._wishes.get(program.id)
            if not (wish.steers or wish.paused):
                continue
            try:
                drifted = [c for c in self._steer(program) if c.before_us != c.slice_us]
                if drifted:
                    self._say("change", program.id, f"{len(drifted)} TSG(s) brought to {self._wish_text(wish)}")
                if wish.paused and self._steward.pausable(program.id, program.tsgs):
                    self._steward.pause(program.id, program.tsgs)
            except ProcessGone:
                continue
            except (RmError, DriverError) as error:
                self._adopter.reread(program.id)
                self._say("error", program.id, str(error))

    @staticmethod
    def _wish_text(wish: Wish) -> str:
        if wish.klass is not None:
            return f"class {wish.klass}"
        return f"weight {wish.weight}" if wish.weight is not None else f"{wish.slice_us} us"

    def _steer(self, program: Program) -> list[TsgChange]:
        """Apply the wish to the program's compute TSGs. RmError, DriverError."""
        changes: list[TsgChange] = []
        for gpu in dict.fromkeys(t.gpu for t in program.compute):
            plan = self._plan(program, gpu)
            if plan is not None:
                tsgs = [t for t in program.compute if t.gpu == gpu]
                try:
                    changes += self._steward.apply(program.id, tsgs, plan)
                finally:
                    self._adopter.changed(program.id, self._steward.current(program.id))
        return changes

    # -- verbs --------------------------------------------------------------------------------------------------

    def set_priority(self, who: str, klass: str) -> Outcome:
        classes.setting(klass)
        return self._steer_verb("set-priority", who, lambda _: Wish(klass=klass))

    def set_weight(self, who: str, weight: int) -> Outcome:
        classes.check_weight(weight)
        selector = select.parse(who)
        tenant = f"container {selector.text}" if selector.by is select.By.CONTAINER else ""
        return self._steer_verb("set-weight", who, lambda _: Wish(weight=weight, tenant=tenant))

    def set_slice(self, who: str, slice_us: int, level: Level | None = None) -> Outcome:
        classes.check_slice(slice_us)
        return self._steer_verb("set-slice", who, lambda _: Wish(slice_us=slice_us, level=level))

    def _steer_verb(self, verb: str, who: str, wish: Callable[[Program | None], Wish]) -> Outcome:
        def act(program: Program) -> Change | Skip:
            target = self._mps_server(program)
            self._wishes.steer(target.id, wish(target))
            changes = self._retry(target, self._steer)
            if not changes:
                return Change(program.id.pid, note="it has no GPU context yet; will be applied when it makes one")
            note = "" if target is program else f"MPS: applied to the server's TSG (PID {target.id.pid}) as one tenant"
            return Change(target.id.pid, tuple(changes), note)

        def pending(process: ProcessId) -> Change:
            self._wishes.steer(process, wish(None))
            return Change(process.pid, note="it uses no GPU yet; will be applied when it makes a context")

        return self._verb(verb, who, act, pending)

    def _mps_server(self, program: Program) -> Program:
        """The program that owns the TSG in which `program` runs: itself, or its MPS server."""
        group = self._view.groups.get(program.id)
        if group is None or group.server in (None, program.id):
            return program
        return next((p for p in self._describe() if p.id == group.server), program)

    def pause(self, who: str) -> Outcome:
        def act(program: Program) -> Change | Skip:
            if program.state in (State.MPS_SERVER, State.MPS_CLIENT):
                return Skip(
                    program.id.pid,
                    "an MPS process cannot be paused: switching its channels off hangs the server's other clients; "
                    "stop sending it work, or run the program without MPS",
                )
            if not program.tsgs:
                return Skip(program.id.pid, "it has no GPU context, so there is nothing to pause")
            changes = self._retry(program, lambda p: self._steward.pause(p.id, p.tsgs))
            self._wishes.pause(program.id, True)
            return Change(program.id.pid, tuple(changes))

        return self._verb("pause", who, act)

    def resume(self, who: str) -> Outcome:
        def resume(program: Program) -> list[TsgChange]:
            self._steward.resume(program.id)
            return []

        def act(program: Program) -> Change | Skip:
            if program.id not in self._journal.paused:
                self._wishes.pause(program.id, False)
                return Skip(program.id.pid, "it is not paused")
            self._retry(program, resume)
            self._wishes.pause(program.id, False)
            return Change(program.id.pid)

        return self._verb("resume", who, act)

    def preempt(self, who: str) -> Outcome:
        def act(program: Program) -> Change | Skip:
            if not program.compute:
                return Skip(program.id.pid, "it has no compute TSG, so there is nothing to take off the GPU")
            return Change(program.id.pid, tuple(self._retry(program, lambda p: self._steward.preempt(p.id, p.compute))))

        return self._verb("preempt", who, act)

    def release(self, who: str) -> Outcome:
        def act(program: Program) -> Change | Skip:
            target = self._mps_server(program)
            touched = target.id in self._journal.processes()
            if not touched and not self._wishes.get(target.id).steers:
                return Skip(target.id.pid, "it is not managed: nothing to put back")
            problems = self._steward.release(target.id)
            if problems:
                return Skip(target.id.pid, "; ".join(problems))
            self._wishes.drop(target.id)
            self._adopter.reread(target.id)
            return Change(target.id.pid, note="put back as it was found" if touched else "forgotten")

        def pending(process: ProcessId) -> Change | Skip:
            if not self._wishes.get(process).steers:
                return Skip(process.pid, "it uses no GPU and nothing was set for it")
            self._wishes.drop(process)
            return Change(process.pid, note="forgotten")

        return self._verb("release", who, act, pending)

    def _retry(self, program: Program, act: Callable[[Program], list[TsgChange]]) -> list[TsgChange]:
        """Run an action; if the driver no longer knows an object, read the program anew and try once more."""
        try:
            return act(program)
        except RmError:
            self._adopter.reread(program.id)
            self._refresh(fresh=True)
            again = next((p for p in self._describe() if p.id == program.id), None)
            if again is None:
                raise ProcessGone(f"PID {program.id.pid} has ended") from None
            return act(again)

    def _verb(
        self,
        verb: str,
        who: str,
        act: Callable[[Program], Change | Skip],
        pending: Callable[[ProcessId], Change | Skip] | None = None,
    ) -> Outcome:
        selector = select.parse(who)
        self._refresh(fresh=True)
        chosen = [
            p for p, h in zip(self._describe(), self._view.holders, strict=True) if selector.matches(h)
        ]
        if self._abi is None:
            untouched = tuple(Skip(p.id.pid, self._read_only()) for p in chosen)
            return Outcome(verb, skipped=untouched or self._nobody(selector))
        started = self._clock()
        answers: list[Change | Skip] = []
        for program in chosen:
            try:
                if program.state is State.NOT_UNDERSTOOD:
                    answers.append(Skip(program.id.pid, "not understood: " + "; ".join(program.notes)))
                else:
                    answers.append(act(program))
            except ProcessGone as error:
                answers.append(Skip(program.id.pid, f"{error}; nothing is left to do"))
            except (RmError, DriverError, OSError) as error:
                answers.append(Skip(program.id.pid, str(error)))
        if not chosen:
            process = self._driver.find(selector.pid) if selector.by is select.By.PID else None
            if process is not None and pending is not None:
                answers.append(pending(process))
            elif process is not None:
                answers.append(Skip(process.pid, "it uses no GPU (no descriptor of /dev/nvidia*)"))
            else:
                answers += self._nobody(selector)
        outcome = Outcome(
            verb,
            changed=tuple(a for a in answers if isinstance(a, Change)),
            skipped=tuple(a for a in answers if isinstance(a, Skip)),
            seconds=self._clock() - started,
        )
        for change in outcome.changed:
            self._say(verb, ProcessId(change.pid, 0), change.note or f"{len(change.tsgs)} TSG(s)")
        return outcome

    def _read_only(self) -> str:
        return f"{self._branch_problem}; nothing is changed on a driver that is not in the tables"

    @staticmethod
    def _nobody(selector: select.Selector) -> tuple[Skip, ...]:
        what = {
            select.By.PID: f"there is no process {selector.text}",
            select.By.CONTAINER: f"no GPU program runs in a container {selector.text}...",
            select.By.COMMAND: f"no GPU program's command matches {selector.text!r}",
        }[selector.by]
        return (Skip(selector.pid, f"{what}; `detshare-ctl ps` lists those that there are"),)

    # -- the rest -----------------------------------------------------------------------------------------------

    def doctor(self) -> list[Check]:
        return doctor.checks(self._driver, self._abi, branches(), os.geteuid(), self._run_dir, self.name)

    def close(self, restore: bool = True) -> None:
        if self._closed:
            return
        self._closed = True
        if restore and self._abi is not None:
            with locked(self._run_dir):
                for process in self._journal.processes():
                    for problem in self._steward.release(process):
                        self._say("error", process, f"not put back: {problem}")
                if not self._journal.processes():
                    self._journal.clear()
        close = getattr(self._driver, "close", None)
        if close is not None:
            with suppress(OSError):
                close()
