# SPDX-License-Identifier: Apache-2.0
"""Backend `root`: steers any living program through its own descriptors, on the stock driver.

It needs root and nothing else. It limits no memory and holds no hostile program: a tenant may set its own slice, which
is seen and put back within about a second, or switch its own paused channels on, which is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from detshare.ctl.backends.desired import Desired
from detshare.ctl.backends.root.gang import MOST, together
from detshare.ctl.backends.root.looking import FAILURES, Looking
from detshare.ctl.core import classes, jobs, select
from detshare.ctl.core.backend import BadRequest, NeedsModule
from detshare.ctl.core.driver import ProcessGone, ProcessId
from detshare.ctl.core.snapshot import UNMANAGED, Change, Level, Outcome, Program, Skip, State, TsgChange
from detshare.ctl.core.verbs import VERBS
from detshare.ctl.rm.client import RmError


class RootBackend(Looking):
    """Implements detshare.ctl.core.backend.Backend over any Driver."""

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        return {
            "set-priority": self.set_priority,
            "set-weight": self.set_weight,
            "set-slice": self.set_slice,
            "set-class": self.set_class,
            "pause": self.pause,
            "resume": self.resume,
            "preempt": self.preempt,
            "release": self.release,
        }

    def set_priority(
        self, who: str, klass: str, weight: int | None = None, floor: float | None = None, tenant: str = ""
    ) -> Outcome:
        classes.setting(klass)
        return self._steer_verb("set-priority", who, Desired(klass, weight, tenant, floor=floor))

    def kept(self, pid: int) -> Mapping[str, object]:
        desired = next((self._desired.get(each) for each in self._watch.adoptions if each.pid == pid), Desired())
        floor = None if desired.floor is None else 100 * desired.floor
        given = {"weight": desired.weight, "floor": floor, "tenant": desired.tenant or None}
        return {name: value for name, value in given.items() if value is not None and desired.klass is not None}

    def set_weight(self, who: str, weight: int) -> Outcome:
        selector = select.parse(who)
        tenant = f"container {selector.text}" if selector.by is select.By.CONTAINER else ""
        return self._steer_verb("set-weight", who, Desired(weight=weight, tenant=tenant))

    def set_slice(self, who: str, slice_us: int, level: Level | None = None) -> Outcome:
        return self._steer_verb("set-slice", who, Desired(slice_us=slice_us, level=level))

    def _steer_verb(self, verb: str, who: str, desired: Desired) -> Outcome:
        selector = select.parse(who)

        def act(program: Program) -> Change | Skip:
            target = self._mps_server(program)
            self._desired.steer(target.id, desired)
            if selector.by is select.By.CONTAINER:
                self._desired.container(selector.text, desired)  # those born later get it too
            elif selector.by is select.By.JOB:
                self._desired.job(program.id, desired)
            changes = self._retry(target, self._steer)
            if not changes:
                return Change(program.id.pid, note="it has no GPU context yet; will be applied when it makes one")
            note = "" if target is program else f"MPS: applied to the server's TSG (PID {target.id.pid}) as one tenant"
            return Change(target.id.pid, tuple(changes), note)

        def pending(process: ProcessId) -> Change:
            self._desired.steer(process, desired)
            return Change(process.pid, note="it uses no GPU yet; will be applied when it makes a context")

        outcome = self._verb(verb, who, act, pending)
        if selector.job and outcome.skipped == (self._nobody(selector),) and self._for_ranks(selector, desired):
            note = f"no rank of {selector.text} is on a GPU yet: {desired.text}, for those to come"
            return Outcome(verb, (Change(0, note=note),), seconds=outcome.seconds)
        whole = selector.by is select.By.CONTAINER and len(selector.text) == select.WHOLE_ID
        if not whole or any(skip.pid for skip in outcome.skipped) or outcome.changed or self._abi is None:
            return outcome
        # A whole id names one container, be it new: what was asked is for the programs that are born there.
        self._desired.container(selector.text, desired)
        note = f"container {selector.text[:12]}: {desired.text}, for programs to come"
        return Outcome(verb, (Change(0, note=note),), seconds=outcome.seconds)

    def _for_ranks(self, selector: select.Selector, desired: Desired | None) -> bool:
        """What ranks of a job get that are started later; whether anything was kept, or forgotten."""
        rank = self._driver.find(selector.pid) if self._abi is not None else None
        return rank is not None and self._desired.job(rank, desired)

    def _mps_server(self, program: Program) -> Program:
        """The program that owns the TSG in which `program` runs: itself, or its MPS server."""
        server = self._watch.head(program.id)
        return program if server == program.id else next((p for p in self._describe() if p.id == server), program)

    def pause(self, who: str) -> Outcome:
        off: dict[ProcessId, list[TsgChange]] = {}
        apart: list[float] = []

        def first(chosen: Sequence[Program]) -> None:
            some = [each for each in chosen if each.state is not State.NOT_UNDERSTOOD and _refusal(each) is None]
            if 1 < len(some) <= MOST:
                try:
                    done, seconds = together(self._act, some, self._leave_turns)
                except BaseException:
                    for program in some:
                        self._admit(program.id)
                    raise
                off.update(done)
                apart.extend([seconds] if len(done) == len(some) else ())

        def act(program: Program) -> Change | Skip:
            if (refusal := _refusal(program)) is not None:
                return refusal
            try:
                if program.id not in off:
                    self._leave_turns(program.id)
                    off[program.id] = self._retry(program, lambda p: self._act.pause(p.id, p.tsgs))
            except BaseException:
                self._admit(program.id)
                raise
            self._desired.pause(program.id, True)
            return Change(program.id.pid, tuple(off[program.id]))

        outcome = self._verb("pause", who, act, first=first)
        return replace(outcome, seconds=apart[0]) if apart else outcome

    def _leave_turns(self, process: ProcessId) -> None:
        if self._turns is not None:
            self._turns.drop(process)

    def resume(self, who: str, lazy: bool = False) -> Outcome:  # memory is the library's
        def resume(program: Program) -> list[TsgChange]:
            self._act.resume(program.id)
            return []

        def act(program: Program) -> Change | Skip:
            if program.id not in self._journal.paused:
                self._desired.pause(program.id, False)
                return Skip(program.id.pid, "it is not paused")
            self._retry(program, resume)
            self._admit(program.id)
            self._desired.pause(program.id, False)
            return Change(program.id.pid)

        return self._verb("resume", who, act)

    def preempt(self, who: str) -> Outcome:
        def act(program: Program) -> Change | Skip:
            if not program.compute:
                return Skip(program.id.pid, "it has no compute TSG, so there is nothing to take off the GPU")
            return Change(program.id.pid, tuple(self._retry(program, lambda p: self._act.preempt(p.id, p.compute))))

        return self._verb("preempt", who, act)

    def release(self, who: str) -> Outcome:
        selector = select.parse(who)

        def act(program: Program) -> Change | Skip:
            target = self._mps_server(program)
            touched = target.id in self._journal.processes()
            if not touched and not self._desired.get(target.id).steers:
                return Skip(target.id.pid, UNMANAGED)
            self._leave_turns(target.id)
            problems = self._act.release(target.id)
            if problems:
                return Skip(target.id.pid, "; ".join(problems))
            self._desired.leave(target.id)
            self._admit(target.id)
            if self._adopter is not None:
                self._adopter.reread(target.id)
            return Change(target.id.pid, note="put back as it was found" if touched else "forgotten")

        def pending(process: ProcessId) -> Change | Skip:
            if not self._desired.get(process).steers:
                return Skip(process.pid, "it uses no GPU and nothing was set for it")
            self._desired.leave(process)
            return Change(process.pid, note="forgotten")

        forgot = False
        if selector.by is select.By.CONTAINER:
            self._desired.container(selector.text, None)
        elif selector.job:
            forgot = self._for_ranks(selector, None)
        elif selector.text == "*":
            self._desired.forget_containers()
        outcome = self._verb("release", who, act, pending)
        if forgot and outcome.skipped == (self._nobody(selector),):
            return Outcome("release", (Change(0, note=f"{selector.text}: forgotten"),), seconds=outcome.seconds)
        return outcome

    def set_class(self, klass: str, change: Mapping[str, object] | None) -> Outcome:
        classes.setting(klass)
        named = dict(change or {})
        number, floor = named.pop("gpu", None), named.pop("floor_permille", None)
        if named:
            raise NeedsModule(self.name, "no rows of classes: of a class it sets the floor alone")
        gpu = "" if number is None else self._numbered(number)
        self._floors.set(klass, floor / 1000 if isinstance(floor, int) else None, gpu)
        where = f" on GPU {number}" if gpu else ""
        note = f"class {klass}: at least {100 * self._floors.of(klass, gpu):g} % of the time{where}"
        return Outcome("set-class", (Change(0, note=note),))

    def _numbered(self, number: object) -> str:
        """The UUID of the GPU of this number. BadRequest where there is none."""
        here = {gpu.minor: gpu.uuid for gpu in self._driver.gpus()}
        if not isinstance(number, int) or number not in here:
            raise BadRequest(f"there is no GPU {number}: there are {', '.join(map(str, sorted(here)))}")
        return here[number]

    def _retry(self, program: Program, act: Callable[[Program], list[TsgChange]]) -> list[TsgChange]:
        """Run an action; if the driver no longer knows an object, read the program anew and try once more."""
        try:
            return act(program)
        except RmError:
            if self._adopter is not None:
                self._adopter.reread(program.id)
            self._watch.refresh(fresh=True)
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
        first: Callable[[Sequence[Program]], None] | None = None,
    ) -> Outcome:
        """`act` on each that is chosen; before that, what is to be done to all of them `first`."""
        undoes = VERBS[verb].undoes
        try:
            self._watch.refresh(fresh=True)
        except FAILURES:
            if not undoes:
                raise
            # The journal knows enough to undo, whatever state the driver is in for new questions.
        selector = select.parse(who)  # now that it is known who is a rank of what
        chosen = [p for p, h in zip(self._describe(), self._watch.openers, strict=True) if selector.matches(h)]
        if self._abi is None:
            reason = f"{self._problem}; nothing is changed on a driver that is not in the tables"
            return Outcome(verb, skipped=tuple(Skip(p.id.pid, reason) for p in chosen) or (self._nobody(selector),))
        started = self._clock()
        answers: list[Change | Skip] = []
        if first is not None:
            first(chosen)
        for program in chosen:
            held = undoes and program.id in self._journal.processes()
            try:
                if program.state is State.NOT_UNDERSTOOD and not held:
                    answers.append(Skip(program.id.pid, "not understood: " + "; ".join(program.notes)))
                else:
                    answers.append(act(program))
            except ProcessGone as error:
                answers.append(Skip(program.id.pid, f"{error}; nothing is left to do"))
            except FAILURES as error:
                answers.append(Skip(program.id.pid, str(error)))
        if not undoes and self._adopter is not None:
            for program in chosen:
                # Act at once; the look that follows reads past long gaps and does the rest of what was asked.
                self._adopter.deepen(program.id)
        if not chosen:
            answers.append(self._unseen(selector, pending))
        outcome = Outcome.of(verb, answers, self._clock() - started)
        for change in outcome.changed:
            self._say(verb, ProcessId(change.pid, 0), self._tell(verb, change))
        return outcome

    def _unseen(
        self, selector: select.Selector, pending: Callable[[ProcessId], Change | Skip] | None
    ) -> Change | Skip:
        """The answer where no GPU program is selected."""
        process = self._driver.find(selector.pid) if selector.by is select.By.PID else None
        if process is None:
            return self._nobody(selector)
        if pending is None:
            return Skip(process.pid, "it uses no GPU (no descriptor of /dev/nvidia*)")
        try:
            return pending(process)
        except OSError as error:
            return Skip(process.pid, str(error))

    def _tell(self, verb: str, change: Change) -> str:
        """What a verb did, for its event."""
        process = next((p for p in self._desired.processes() if p.pid == change.pid), None)
        done = VERBS[verb].done or (self._desired.get(process).text if process else "")
        tsgs = f"{len(change.tsgs)} TSG{'s' if len(change.tsgs) > 1 else ''}" if change.tsgs else ""
        return ", ".join(text for text in (done, tsgs, change.note) if text)

    @staticmethod
    def _nobody(selector: select.Selector) -> Skip:
        what = {
            select.By.PID: f"there is no process {selector.text}",
            select.By.CONTAINER: f"no GPU program runs in a container {selector.text}...",
            select.By.COMMAND: f"no GPU program's command matches {selector.text!r}",
            select.By.JOB: f"PID {selector.pid} is no rank of a job, or no rank of it is on a GPU (a rank has one of "
            f"{', '.join(jobs.SIZES)} above 1 in its environment, or shares memory from GPU to GPU with another one)",
        }[selector.by]
        return Skip(selector.pid, f"{what}; `detshare-ctl ps` lists those that there are")


def _refusal(program: Program) -> Skip | None:
    """Why it cannot be paused."""
    if program.state in (State.MPS_SERVER, State.MPS_CLIENT):
        return Skip(
            program.id.pid,
            "an MPS process cannot be paused: switching its channels off hangs the server's other clients; "
            "stop sending it work, or run the program without MPS",
        )
    if not program.tsgs:
        return Skip(program.id.pid, "it has no GPU context, so there is nothing to pause")
    return None
