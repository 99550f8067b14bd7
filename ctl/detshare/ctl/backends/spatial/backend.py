# SPDX-License-Identifier: Apache-2.0
"""Backend `shim`: the programs of the spatial lane, which their own runtime steers as their boards say.

It acts by shared pages alone, needs no driver call, and holds no hostile program: the runtime lives in the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from detshare.ctl.backends.spatial.checkpoints import STAYS
from detshare.ctl.backends.spatial.pool import Pool, set_text
from detshare.ctl.backends.spatial.residence import AWAY, Residence, parking_of
from detshare.ctl.backends.spatial.shapes import shapes
from detshare.ctl.core import classes, procfs, select
from detshare.ctl.core.backend import Backend, BadRequest
from detshare.ctl.core.driver import Gpu, Opener, ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Change, Check, Event, Outcome, Program, Skip, Snapshot, State
from detshare.ctl.core.work import Spatial, times
from detshare.runtime.meeting import Meeting
from detshare.runtime.reflexes import HOLD, Desired, Override, overlaps
from detshare.runtime.service import Service
from detshare.runtime.tenant import Pending, Tenant, View, wait
from detshare.runtime.tiers import Gpu as SpatialGpu
from detshare.runtime.tiers import of_percent, parse

TIMEOUT: float = 5.0
"""seconds that set-sm waits for programs to acknowledge, where nothing else was asked for"""
_SHARED: Final[dict[str, Any]] = {"exclusive": "", "exclusive_sms": 0}
"""parts of a desired state of who has nothing to itself"""
_SLICES = "it is in the spatial lane, where kernels run side by side: use set-priority or set-sm"


class ShimBackend(Backend):
    """Implements detshare.ctl.core.backend.Backend over a Service."""

    def __init__(self, service: Service, pool: Pool | None = None) -> None:
        self._service = service
        self.pool = pool or Pool()
        self._tenants = service.tenants
        self._policies = service.policies
        self.residence = Residence(service.tenants, self._gone)
        self.beside: Collection[int] = ()
        """PIDs of the other lane's programs, of which those of the model are no processes of this machine"""
        self._had = False

    @property
    def name(self) -> str:
        return "shim"

    def openers(self) -> list[Opener]:
        """The spatial lane's programs, as selectors match them."""
        found: dict[ProcessId, Opener] = {}
        for view in self._tenants.views():
            process = view.record.process
            if process not in found:
                try:
                    found[process] = procfs.describe(process.pid, process.start, [], [])
                except OSError:
                    continue  # it ended meanwhile
        return list(found.values())

    def look(self, *, enforce: bool = True) -> Snapshot:
        started = time.monotonic()
        views: dict[ProcessId, list[View]] = {}
        for view in self._tenants.views():
            views.setdefault(view.record.process, []).append(view)
        programs = [_program(opener, views[opener.id]) for opener in self.openers() if opener.id in views]
        self._had = bool(programs)
        gpus = {view.record.gpu.uuid for several in views.values() for view in several}
        return Snapshot(
            backend=self.name,
            proof="unit",
            driver="",
            taken=started,
            seconds=time.monotonic() - started,
            gpus=tuple(Gpu(uuid, -1, "", "") for uuid in sorted(gpus)),
            programs=tuple(programs),
        )

    def stirs(self) -> bool:
        return self._had or bool(self._tenants.views())

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        return {
            "set-priority": self.set_priority,
            "set-weight": lambda who, **_: self._cannot("set-weight", who, _SLICES),
            "set-slice": lambda who, **_: self._cannot("set-slice", who, _SLICES),
            "preempt": lambda who: self._cannot("preempt", who, _SLICES),
            "migrate": lambda who, **_: self._cannot("migrate", who, STAYS),
            "set-memory": self.set_memory,
            "set-sm": self.set_sm,
            "bind": self.bind,
            "set-busy": self.set_busy,
            "set-reserve": lambda _, sms=None: self.set_reserve(sms),
            "set-reflex": self.set_reflex,
            "hold": self.hold,
            "park": self.park,
            "pause": self.pause,
            "resume": self.resume,
            "release": self.release,
        }

    def _cannot(self, verb: str, who: str, why: str) -> Outcome:
        return self._verb(verb, who, lambda opener: Skip(opener.id.pid, why))

    def servers(self) -> Collection[int]:
        """PIDs of the MPS servers that its programs are clients of, as last seen."""
        return self._service.mps.servers

    # -- verbs --------------------------------------------------------------------------------------------------

    def owns(self, who: str) -> set[int]:
        """PIDs of the spatial lane's programs that `who` selects. BadRequest where it cannot be meant."""
        selector = select.parse(who)
        return {opener.id.pid for opener in self.openers() if selector.matches(opener)}

    def _verb(self, verb: str, who: str, act: Callable[[Opener], Change | Skip]) -> Outcome:
        selector = select.parse(who)
        started = time.monotonic()
        chosen = [opener for opener in self.openers() if selector.matches(opener)]
        answers: list[Change | Skip] = []
        for opener in chosen:
            try:
                answers.append(act(opener))
            except OSError as error:
                answers.append(Skip(opener.id.pid, f"the board directory does not take it: {error}"))
        if not chosen:
            answers.append(self._nobody(selector))
        return Outcome.of(verb, answers, time.monotonic() - started)

    def _gone(self, pid: int) -> bool:
        return pid not in self.beside and procfs.start_time(pid) is None

    def _nobody(self, selector: select.Selector) -> Skip:
        if selector.by is select.By.PID and self._gone(selector.pid):
            reason = f"there is no process {selector.text}"
            return Skip(selector.pid, f"{reason}; `detshare-ctl ps` lists those that there are")
        what = "it is not" if selector.by is select.By.PID else "nobody that this selects is"
        return Skip(selector.pid, f"{what} in the spatial lane: start it with detshare run --lane spatial -- COMMAND")

    def _desired_one(self, process: ProcessId) -> Desired | None:
        return next((tenant.record.desired for tenant in self._policies.of(process)), None)

    def set_priority(
        self, who: str, klass: str, weight: int | None = None, floor: float | None = None, tenant: str = ""
    ) -> Outcome:
        classes.setting(klass)

        def act(opener: Opener) -> Change | Skip:
            if not self._policies.change(opener.id, klass=klass):
                return Skip(opener.id.pid, "it has ended; nothing is left to do")
            return Change(opener.id.pid, note=f"spatial lane: class {klass}", stands=True)

        return self._verb("set-priority", who, act)

    def set_sm(self, who: str, percent: int, timeout: float | None = None) -> Outcome:
        pending: list[Pending] = []

        def act(opener: Opener) -> Change | Skip:
            desired = {"percent": None if percent == 100 else percent, **_SHARED}
            mine = self._policies.change(opener.id, **desired)
            if not mine:
                return Skip(opener.id.pid, "it has ended; nothing is left to do")
            pending.extend(mine)
            return Change(opener.id.pid, note=self._granted(mine[0].tenant, percent), stands=True)

        return self._acknowledged(self._verb("set-sm", who, act), pending, f"set-sm {who} {percent}", timeout)

    def bind(self, who: str, pctx: str, timeout: float | None = None) -> Outcome:
        pending: list[Pending] = []

        def act(opener: Opener) -> Change | Skip:
            tenants = self._policies.of(opener.id)
            if not tenants:
                return Skip(opener.id.pid, "it has ended; nothing is left to do")
            gpu = tenants[0].record.gpu
            member = self.pool.find(pctx, gpu)
            if member.exclusive:
                desired: dict[str, Any] = {"percent": None, "exclusive": member.name, "exclusive_sms": member.sms}
                if (why := self._taken(opener.id, gpu, pctx)) is not None:
                    return Skip(opener.id.pid, why)
            else:
                desired = {"percent": None if member.percent == 100 else member.percent, **_SHARED}
            mine = self._policies.change(opener.id, **desired)
            pending.extend(mine)
            granted = mine[0].tenant.table.tiers[mine[0].tenant.pages.policy.read().tier_idle]
            return Change(opener.id.pid, note=f"pCtx {pctx}: {granted.text(gpu.sms)} of {gpu.sms}", stands=True)

        return self._acknowledged(self._verb("bind", who, act), pending, f"bind {who} {pctx}", timeout)

    def set_busy(self, who: str, sms: int | None = None) -> Outcome:
        def act(opener: Opener) -> Change | Skip:
            tenants = self._policies.of(opener.id)
            if not tenants:
                return Skip(opener.id.pid, "it has ended; nothing is left to do")
            gpu = tenants[0].record.gpu
            busy = "" if sms is None else _busy_set(sms, gpu)
            self._policies.change(opener.id, busy=busy)
            made = "as its class says" if not busy else "it holds" if busy == HOLD else parse(busy, gpu).text(gpu.sms)
            return Change(opener.id.pid, note=f"while a higher class is active: {made}", stands=True)

        return self._verb("set-busy", who, act)

    def _taken(self, process: ProcessId, gpu: SpatialGpu, pctx: str) -> str | None:
        """Why a program cannot have an exclusive pCtx of a GPU now."""
        owner = self._policies.owner(gpu.uuid)
        if owner is not None and owner.record.process != process:
            pid = owner.record.pid
            name = owner.record.desired.exclusive
            return f"PID {pid} has {name} to itself: move it first (detshare-ctl bind {pid} 100%)"
        if self._policies.reserved is not None:
            sms = self._policies.reserved
            return f"{sms} SMs, from the first on, are reserved for class high: detshare-ctl reserve off"
        return None

    def _acknowledged(
        self, outcome: Outcome, pending: list[Pending], asked: str, timeout: float | None
    ) -> Outcome:
        """The outcome, once nothing that was launched before contradicts it. ControlError after `timeout` seconds."""
        seconds = TIMEOUT if timeout is None else timeout
        late = sorted({tenant.record.pid for tenant in wait(pending, seconds)})
        if late:
            pids = ", ".join(map(str, late))
            stopped = f"PID {pids} did not acknowledge within {seconds:g} s: work of it from before may still run"
            following = "the change stands for all that it launches from now on; wait longer with --timeout, or see"
            raise ControlError(asked, stopped, f"{following}: detshare-ctl show {late[0]}")
        return outcome

    def _granted(self, tenant: Tenant, percent: int) -> str:
        """What a share came to: the tier that it is, and what is odd about it."""
        gpu = tenant.record.gpu
        made = tenant.table.tiers[tenant.pages.policy.read().tier_idle]
        note = f"{made.text(gpu.sms)} of {gpu.sms}"
        if made != of_percent(percent, gpu):
            note += "; its table of tiers is full, so it got the next smaller one that it had before"
        if overlaps(tenant.record.desired, self._policies.reserved):
            note += f"; this lies in the {self._policies.reserved} SMs that are reserved for class high"
        return note

    def hold(self, who: str, lease_s: int | None = None) -> Outcome:
        if lease_s is not None:
            raise BadRequest("a lease needs the kernel module; in the spatial lane a hold lasts until resume")
        return self._hold("hold", who, True)

    def meeting(self, ranks: Collection[ProcessId]) -> Meeting | None:
        """Where the ranks of a job stop together; None where one of them is not under the library."""
        return self._policies.meeting(ranks)

    def pause(self, who: str) -> Outcome:
        return self._hold("pause", who, True)

    def park(
        self, who: str, timeout: float | None = None, room_for: int | None = None, deep: bool = False
    ) -> Outcome:
        done = self.residence.park(who, timeout, room_for)
        if not deep:
            return done
        # where it can be had it is the driver's, beside this backend
        note = "its context stays on the GPU: this daemon's backend asks no driver for a checkpoint"
        return replace(done, changed=tuple(replace(each, note=f"{each.note}; {note}") for each in done.changed))

    def resume(self, who: str, lazy: bool = False) -> Outcome:
        return with_memory(self._hold("resume", who, False), self.residence.resume(who, lazy))

    def _hold(self, verb: str, who: str, on: bool) -> Outcome:
        def act(opener: Opener) -> Change | Skip:
            if not self._policies.hold(opener.id, on):
                return Skip(opener.id.pid, "it is held already" if on else "it is not held")
            return Change(opener.id.pid, note="held from its next kernel boundary on" if on else "spatial lane")

        return self._verb(verb, who, act)

    def release(self, who: str) -> Outcome:
        def act(opener: Opener) -> Change | Skip:
            desired = self._desired_one(opener.id)
            held = self._policies.hold(opener.id, False)
            if desired == Desired() and not held:
                return Skip(opener.id.pid, "nothing was set for it in the spatial lane")
            default = Desired()
            plain = {name: getattr(default, name) for name in ("klass", "percent", "memory", "busy")}
            self._policies.change(opener.id, **plain, **_SHARED)
            return Change(opener.id.pid, note="spatial lane: not held, all SMs, class normal, no memory limit")

        return self._verb("release", who, act)

    def set_memory(self, who: str, limit: int | None, gpu: int | None = None) -> Outcome:
        if gpu is not None:
            raise BadRequest("in the spatial lane a memory limit counts for each GPU by itself: leave --gpu out")

        def act(opener: Opener) -> Change | Skip:
            if not self._policies.change(opener.id, memory=limit):
                return Skip(opener.id.pid, "it has ended; nothing is left to do")
            return Change(opener.id.pid, note="spatial lane: its own runtime refuses what is beyond", stands=True)

        return self._verb("set-memory", who, act)

    def set_reserve(self, sms: int | None) -> Outcome:
        self._policies.reserve(sms)
        text = "no SMs are reserved" if sms is None else f"the first {sms} SMs of each GPU are kept for class high"
        return Outcome("set-reserve", (Change(0, note=f"{text}; everybody else has the rest" if sms else text),))

    def set_reflex(self, klass: str, change: Mapping[str, str | int | None]) -> Outcome:
        self._policies.override(klass, Override(**change))  # type: ignore[arg-type]  # check() looks at each
        said = ", ".join(f"{name} {value}" for name, value in change.items() if value is not None) or "as by default"
        return Outcome("set-reflex", (Change(0, note=f"class {klass} of the spatial lane: {said}"),))

    # -- the rest -----------------------------------------------------------------------------------------------

    def alive(self, process: ProcessId) -> bool:
        return procfs.start_time(process.pid) == process.start

    def doctor(self) -> list[Check]:
        return self._service.doctor()

    def drain_events(self) -> Sequence[Event]:
        return self._service.drain_events()

    def close(self, restore: bool = True) -> None:
        self._service.close(restore)


def with_memory(resumed: Outcome, fetched: Outcome) -> Outcome:
    """One outcome of who was let run on and whose memory was brought back."""
    back = {change.pid: change for change in fetched.changed}
    changed = [replace(each, note=back.pop(each.pid).note) if each.pid in back else each for each in resumed.changed]
    done = {change.pid for change in fetched.changed}
    left = [skip for skip in resumed.skipped if skip.pid not in done and not (done and not skip.pid)]
    answers: list[Change | Skip] = [*changed, *back.values(), *left, *fetched.skipped]
    return Outcome.of(resumed.verb, answers, resumed.seconds + fetched.seconds)


def _program(opener: Opener, views: list[View]) -> Program:
    """A process of the spatial lane as a Program."""
    first = views[0]
    gpu, desired = first.record.gpu, first.record.desired
    numbers = {name: _sum(views, name) for name in ("launches", "graph_launches", "remaps", "held_ns", "in_flight")}
    full = sum(sum(runs) for view in views if isinstance(runs := view.counters["full_runs"], list))
    notes = [view.lost for view in views if view.lost][:1]
    if first.counters["unmanaged"]:
        notes.append("it has contexts that green contexts cannot serve; they run on the whole GPU")
    pool, parking = _sum(views, "pool_bytes"), parking_of(views)
    by_gpu: dict[str, list[View]] = {}
    for view in views:
        by_gpu.setdefault(view.record.gpu.uuid, []).append(view)
    memory = {uuid: _sum(several, "memory_used") for uuid, several in by_gpu.items()}
    return Program(
        id=opener.id,
        command=opener.command,
        user=opener.user,
        container=opener.container,
        state=State.PAUSED if first.held else State.PARKED if parking and parking.state in AWAY else State.SPATIAL,
        gpus=tuple(by_gpu),
        klass=desired.klass,
        memory_bytes=sum(memory.values()) or None,
        gpu_memory=memory if any(memory.values()) else {},
        notes=tuple(notes),
        tenant=first.record.tenant,
        parking=parking,
        spatial=Spatial(
            sms=gpu.sms,
            idle=first.idle.text(gpu.sms),
            busy="held" if first.hold else first.busy.text(gpu.sms),
            idle_sms=first.idle.size(gpu.sms),
            percent=desired.percent,
            memory_limit=desired.memory,
            held=first.held,
            waiting=first.waiting,
            epoch=first.epoch,
            acknowledged=int(first.counters["epoch_ack"]) == first.epoch,  # type: ignore[arg-type]  # a scalar field
            launches=numbers["launches"],
            graph_launches=numbers["graph_launches"],
            remaps=numbers["remaps"],
            full_runs=full,
            in_flight=numbers["in_flight"],
            held_ms=numbers["held_ns"] / 1e6,
            pool_bytes=pool,
            idle_set=set_text(first.idle),
            exclusive=desired.exclusive,
            step=gpu.step,
            kernels=times(_summed(views, "hist_kernel")),
            graphs=times(_summed(views, "hist_graph")),
            busy_sms=0 if first.hold else first.busy.size(gpu.sms),
            delays=tuple(_summed(views, "hist_delay")),
            blocks=max(int(view.counters["last_blocks"]) for view in views),  # type: ignore[arg-type]  # a scalar field
            shapes=shapes([view.counters for view in views]),
        ),
    )


def _sum(views: list[View], name: str) -> int:
    return sum(value for view in views if isinstance(value := view.counters[name], int))


__all__ = ["TIMEOUT", "ShimBackend"]


def _summed(views: list[View], name: str) -> list[int]:
    """A histogram over all GPUs of a program. What the program wrote there need not be true."""
    found = [histogram for view in views if isinstance(histogram := view.counters[name], list)]
    return [sum(column) for column in zip(*found, strict=True)]


def _busy_set(sms: int, gpu: SpatialGpu) -> str:
    """The largest set of at most `sms` SMs that the GPU has, the smallest where that is none; HOLD for 0."""
    if sms == 0:
        return HOLD
    if sms >= gpu.sms:
        return "full"
    return f"first:{min(gpu.largest, max(gpu.step, sms // gpu.step * gpu.step))}"
