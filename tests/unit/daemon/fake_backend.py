# SPDX-License-Identifier: Apache-2.0
"""A backend in memory: three programs, no driver. For tests of what stands above a backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from detshare.ctl.core import classes, select
from detshare.ctl.core.backend import Backend
from detshare.ctl.core.driver import Gpu, NotAllowed, Opener, ProcessId
from detshare.ctl.core.snapshot import (
    Account,
    AccountKind,
    Change,
    Check,
    Event,
    Kind,
    Level,
    LimitChange,
    Outcome,
    Program,
    Skip,
    Snapshot,
    State,
    Tenant,
    Tsg,
    TsgChange,
)

GPU = "GPU-00000000-1111-2222-3333-444444444444"
CONTAINER = "c0ffee" * 10 + "c0fe"


def tsg(handle: int, slice_us: int = 2048, kind: Kind = Kind.COMPUTE) -> Tsg:
    return Tsg(GPU, 5, 0xC1D00001, handle, 1, 2, 3, kind, "GR0", (handle + 1, handle + 2), (handle + 3,), slice_us)


def programs() -> list[Program]:
    return [
        Program(
            ProcessId(4242, 100),
            "/usr/bin/python serve.py",
            "ann",
            CONTAINER,
            State.RUNNING,
            (tsg(0x5C000010), tsg(0x5C000020, 1024, Kind.COPY)),
            (GPU,),
            memory_bytes=3 << 30,
            gpu_share=0.25,
            adopted_ms=31.0,
        ),
        Program(
            ProcessId(4300, 101), "python train.py --epochs 90", "bob", "", State.RUNNING, (tsg(0x5C000010),), (GPU,)
        ),
        Program(ProcessId(4400, 102), "python later.py \x1b[31m", "bob", "", State.NO_CONTEXT),
    ]


def _opener(program: Program) -> Opener:
    return Opener(program.id, 1, program.command, "", program.user, "", program.container, (5,), ())


class FakeBackend(Backend):
    """Implements detshare.ctl.core.backend.Backend. `alive_elsewhere`: PIDs that live and use no GPU."""

    name = "fake"

    def __init__(self) -> None:
        self.programs = programs()
        self.proof = "unit"
        self.alive_elsewhere = {999}
        self.calls: list[tuple[object, ...]] = []
        self.threads: set[int] = set()
        self.closed: list[bool] = []
        self.looks = 0
        self.fail: Exception | None = None
        self.fail_look: Exception | None = None
        self.ended: set[int] = set()
        """PIDs that ended since the last look"""
        self.hang: threading.Event | None = None
        """a look waits for it"""
        self.tenants: list[str] = []
        self.teller: Callable[[Event], None] | None = None
        self.waker: Callable[[], None] | None = None
        self.early = 0
        self.fail_early: Exception | None = None
        self.rules: Mapping[str, str] = {}
        self.edge: Callable[[int, bool], None] | None = None
        self.standing: dict[str, Any] = {}
        """more fields of a look"""
        self._events: list[Event] = []

    def alive(self, process: ProcessId) -> bool:
        return process.pid not in self.ended

    def look(self, *, enforce: bool = True) -> Snapshot:
        self.threads.add(threading.get_ident())
        self.looks += 1
        if self.fail_look is not None:
            raise self.fail_look
        if self.hang is not None:
            self.hang.wait(10)
        gpu = Gpu(GPU, 0, "Fake H100", "0000:01:00.0", 80 << 30)
        return Snapshot(
            self.name,
            self.proof,
            "580.0",
            time.monotonic(),
            0.001,
            (gpu,),
            tuple(self.programs),
            accounts=tuple(account for program in self.programs for account in program.limits),
            tenants=tuple(Tenant(name, (4242,)) for name in self.tenants),
            **self.standing,
        )

    def wake_by(self, wake: Callable[[], None]) -> None:
        self.waker = wake

    def apply_early(self) -> None:
        self.threads.add(threading.get_ident())
        self.early += 1
        if self.fail_early is not None:
            raise self.fail_early

    def stand(self, rules: Mapping[str, str]) -> None:
        self.rules = rules

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        """With the name kmod, what the kernel module holds too."""
        always = {
            "set-priority": self.set_priority,
            "set-weight": self.set_weight,
            "set-slice": self.set_slice,
            "pause": self.pause,
            "resume": self.resume,
            "park": self.park,
            "preempt": self.preempt,
            "release": self.release,
            "tenant-attach": self.tenant_attach,
        }
        module = {
            "set-memory": self.set_memory,
            "tenant-add": self.tenant_add,
            "tenant-del": self.tenant_del,
            "hold": self.hold,
            "set-bucket": self.set_bucket,
            "set-class": self.set_class,
            "set-ceiling": self.set_ceiling,
        }
        return {**always, **module} if self.name == "kmod" else always

    def set_priority(
        self, who: str, klass: str, weight: int | None = None, floor: float | None = None, tenant: str = ""
    ) -> Outcome:
        level = classes.setting(klass).level

        def act(program: Program) -> Program:
            return replace(program, klass=klass, weight=weight, floor=floor, tsgs=_set(program, 777, level))

        return self._verb("set-priority", who, act, late=True)

    def set_weight(self, who: str, weight: int) -> Outcome:
        return self._verb("set-weight", who, lambda p: replace(p, weight=weight), late=True)

    def set_slice(self, who: str, slice_us: int, level: Level | None = None) -> Outcome:
        return self._verb("set-slice", who, lambda p: replace(p, tsgs=_set(p, slice_us, level)), late=True)

    def pause(self, who: str) -> Outcome:
        return self._verb("pause", who, lambda p: replace(p, state=State.PAUSED))

    def resume(self, who: str, lazy: bool = False) -> Outcome:
        return self._verb("resume", who, lambda p: replace(p, state=State.RUNNING))

    def park(self, who: str, timeout: float = 20.0, room_for: int | None = None, deep: bool = False) -> Outcome:
        return self._verb("park", who, lambda p: replace(p, state=State.PARKED))

    def preempt(self, who: str) -> Outcome:
        return self._verb("preempt", who, lambda p: p)

    def release(self, who: str) -> Outcome:
        return self._verb("release", who, lambda p: replace(p, klass=None, weight=None))

    def set_memory(self, who: str, limit: int | None, gpu: int | None = None) -> Outcome:
        self.calls.append(("set-memory", who, limit, gpu))
        if who in self.tenants:
            return Outcome("set-memory", (Change(0, limit=LimitChange(f"tenant {who}", gpu, None, limit)),))
        limits = () if limit is None else (Account(AccountKind.PID, who, gpu, limit, 3 << 30),)
        for index, program in enumerate(self.programs):
            if str(program.id.pid) == who:
                before = program.memory_limit
                self.programs[index] = replace(program, limits=limits)
                change = LimitChange(f"pid {who}", gpu, before, limit, 3 << 30)
                return Outcome("set-memory", (Change(program.id.pid, limit=change),))
        return Outcome("set-memory", skipped=(Skip(0, "nobody; `detshare-ctl ps` lists those that there are"),))

    def tenant_add(self, name: str) -> Outcome:
        self.tenants.append(name)
        return Outcome("tenant-add", (Change(0, note=f"tenant {name}"),))

    def tenant_attach(self, who: str, name: str) -> Outcome:
        return self._verb("tenant-attach", who, lambda p: replace(p, tenant=name))

    def tenant_del(self, name: str) -> Outcome:
        self.tenants.remove(name)
        return Outcome("tenant-del", (Change(0, note=f"tenant {name}"),))

    def hold(self, who: str, lease_s: int | None = None) -> Outcome:
        return self._verb(f"hold {lease_s}", who, lambda p: replace(p, state=State.GATED))

    def set_bucket(self, who: str, rate_us: int | None = None, burst_us: int | None = None) -> Outcome:
        self.calls.append(("set-bucket", who, rate_us, burst_us))
        return Outcome("set-bucket", (Change(0, note=f"cgroup {who}: {rate_us}", stands=True),))

    def set_class(self, klass: str, change: Mapping[str, object] | None) -> Outcome:
        self.calls.append(("set-class", klass, change))
        return Outcome("set-class", (Change(0, note=f"class {klass}", stands=True),))

    def set_ceiling(self, who: str, percent: int) -> Outcome:
        self.calls.append(("set-ceiling", who, percent))
        return Outcome("set-ceiling", (Change(4242, stands=True),))

    def listen(self, tell: Callable[[Event], None], edge: Callable[[int, bool], None] | None = None) -> None:
        self.teller, self.edge = tell, edge

    def attend(self, on: bool) -> None:
        self.calls.append(("attend", on))

    def doctor(self) -> list[Check]:
        return [Check("fake", True, "in memory; holds no hostile tenant")]

    def drain_events(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def close(self, restore: bool = True) -> None:
        self.closed.append(restore)

    def state(self) -> list[Program]:
        """For "nothing was changed": a copy that compares by value."""
        return list(self.programs)

    def _verb(self, verb: str, who: str, act: Callable[[Program], Program], late: bool = False) -> Outcome:
        self.threads.add(threading.get_ident())
        selector = select.parse(who)
        if self.fail is not None:
            raise self.fail
        self.calls.append((verb, who))
        changed, skipped = [], []
        for index, program in enumerate(self.programs):
            if not selector.matches(_opener(program)):
                continue
            if not program.tsgs:
                if late:
                    changed.append(Change(program.id.pid, note="will be applied when it makes a context"))
                else:
                    skipped.append(Skip(program.id.pid, "it has no GPU context"))
                continue
            self.programs[index] = after = act(program)
            tsgs = tuple(
                TsgChange(t.gpu, t.handle, t.slice_us, None if t.level is None else t.level.name.lower(), b.slice_us)
                for t, b in zip(after.compute, program.compute, strict=True)
            )
            changed.append(Change(program.id.pid, tsgs))
        if not changed and not skipped:
            if selector.pid in self.alive_elsewhere:
                if late:
                    changed.append(Change(selector.pid, note="it uses no GPU yet; will be applied when it does"))
                else:
                    skipped.append(Skip(selector.pid, "it uses no GPU"))
            else:
                hint = "`detshare-ctl ps` lists those that there are"
                skipped.append(Skip(selector.pid, f"nothing matches {who}; {hint}"))
        for change in changed:
            self._events.append(Event(time.time(), "change", change.pid, verb))
        return Outcome(verb, tuple(changed), tuple(skipped), 0.001)


def _set(program: Program, slice_us: int, level: Level | None) -> tuple[Tsg, ...]:
    return tuple(replace(t, slice_us=slice_us, level=level) if t.kind is Kind.COMPUTE else t for t in program.tsgs)


def refusing() -> FakeBackend:
    """A backend whose kernel refuses every verb."""
    backend = FakeBackend()
    backend.fail = NotAllowed("duplicate descriptor 5 of PID 4242: the kernel refused")
    return backend
