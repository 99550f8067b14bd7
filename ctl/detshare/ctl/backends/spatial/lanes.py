# SPDX-License-Identifier: Apache-2.0
"""Two backends as one: `shim` serves the programs of the spatial lane, root, kmod or the model all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from detshare.ctl.backends.spatial.backend import ShimBackend
from detshare.ctl.core import select
from detshare.ctl.core.backend import Backend
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Check, Event, Level, Outcome, Program, Snapshot


class Lanes(Backend):
    """A backend for each lane. A PID belongs to the spatial lane as long as it has a board there."""

    def __init__(self, temporal: Backend, spatial: ShimBackend) -> None:
        self._temporal = temporal
        self._spatial = spatial

    @property
    def name(self) -> str:
        return self._temporal.name

    def look(self, *, enforce: bool = True) -> Snapshot:
        seen = self._temporal.look(enforce=enforce)
        mine = {program.id: program for program in self._spatial.look().programs}
        merged = [_merged(program, mine.pop(program.id, None)) for program in seen.programs]
        return replace(seen, programs=(*merged, *mine.values()))

    def _split(
        self, verb: str, who: str, spatial: Callable[[str], Outcome], temporal: Callable[[str], Outcome]
    ) -> Outcome:
        """Do it in the lane of each program that `who` selects."""
        mine = self._spatial.owns(who)
        if not mine:
            return temporal(who)
        done = [spatial(who)]
        if select.parse(who).by is not select.By.PID:
            other = temporal(who)
            # what the temporal backend says of programs that are the other lane's is not theirs
            changed = tuple(change for change in other.changed if change.pid not in mine)
            skipped = tuple(skip for skip in other.skipped if skip.pid and skip.pid not in mine)
            done.append(replace(other, changed=changed, skipped=skipped))
        return Outcome(
            verb,
            tuple(change for each in done for change in each.changed),
            tuple(skip for each in done for skip in each.skipped),
            sum(each.seconds for each in done),
        )

    def set_priority(
        self, who: str, klass: str, weight: int | None = None, floor: float | None = None, tenant: str = ""
    ) -> Outcome:
        return self._split(
            "set-priority",
            who,
            lambda w: self._spatial.set_priority(w, klass),
            lambda w: self._temporal.set_priority(w, klass, weight, floor, tenant),
        )

    def set_weight(self, who: str, weight: int) -> Outcome:
        return self._split(
            "set-weight",
            who,
            lambda w: self._spatial.set_weight(w, weight),
            lambda w: self._temporal.set_weight(w, weight),
        )

    def set_slice(self, who: str, slice_us: int, level: Level | None = None) -> Outcome:
        return self._split(
            "set-slice",
            who,
            lambda w: self._spatial.set_slice(w, slice_us, level),
            lambda w: self._temporal.set_slice(w, slice_us, level),
        )

    def pause(self, who: str) -> Outcome:
        return self._split("pause", who, self._spatial.pause, self._temporal.pause)

    def resume(self, who: str) -> Outcome:
        return self._split("resume", who, self._spatial.resume, self._temporal.resume)

    def preempt(self, who: str) -> Outcome:
        return self._split("preempt", who, self._spatial.preempt, self._temporal.preempt)

    def release(self, who: str) -> Outcome:
        return self._split("release", who, self._spatial.release, self._temporal.release)

    def set_memory(self, who: str, limit: int | None, gpu: int | None = None) -> Outcome:
        # `who` may be a tenant's name or a cgroup here, which only the kernel module knows
        if who.strip().isdecimal() and self._spatial.owns(who) and self._temporal.name != "kmod":
            return self._spatial.set_memory(who, limit, gpu)
        return self._temporal.set_memory(who, limit, gpu)

    def set_sm(self, who: str, percent: int, timeout: float | None = None) -> Outcome:
        return self._spatial.set_sm(who, percent, timeout)

    def bind(self, who: str, pctx: str, timeout: float | None = None) -> Outcome:
        def temporal(chosen: str) -> Outcome:
            return replace(self._temporal.set_ceiling(chosen, self._spatial.pool.percent(pctx)), verb="bind")

        return self._split("bind", who, lambda w: self._spatial.bind(w, pctx, timeout), temporal)

    def set_busy(self, who: str, sms: int | None) -> Outcome:
        return self._spatial.set_busy(who, sms)

    def hold(self, who: str, lease_s: int | None = None) -> Outcome:
        if self._temporal.name != "kmod":
            return self._spatial.hold(who, lease_s)
        return self._split(
            "hold", who, lambda w: self._spatial.hold(w, lease_s), lambda w: self._temporal.hold(w, lease_s)
        )

    def set_bucket(self, who: str, rate_us: int | None, burst_us: int | None = None) -> Outcome:
        return self._temporal.set_bucket(who, rate_us, burst_us)

    def set_class(self, klass: str, change: Mapping[str, object] | None) -> Outcome:
        return self._temporal.set_class(klass, change)

    def set_ceiling(self, who: str, percent: int) -> Outcome:
        return self._temporal.set_ceiling(who, percent)

    def set_reserve(self, sms: int | None) -> Outcome:
        return self._spatial.set_reserve(sms)

    def set_reflex(self, klass: str, change: Mapping[str, str | int | None]) -> Outcome:
        return self._spatial.set_reflex(klass, change)

    def tenant_add(self, name: str) -> Outcome:
        return self._temporal.tenant_add(name)

    def tenant_attach(self, who: str, name: str) -> Outcome:
        return self._temporal.tenant_attach(who, name)

    def tenant_del(self, name: str) -> Outcome:
        return self._temporal.tenant_del(name)

    def alive(self, process: ProcessId) -> bool:
        # the model's processes are no processes of this machine, and the other way round
        return self._temporal.alive(process) or self._spatial.alive(process)

    def doctor(self) -> list[Check]:
        return [*self._temporal.doctor(), *self._spatial.doctor()]

    def drain_events(self) -> Sequence[Event]:
        return [*self._temporal.drain_events(), *self._spatial.drain_events()]

    def listen(self, tell: Callable[[Event], None], edge: Callable[[int, bool], None] | None = None) -> None:
        self._temporal.listen(tell, edge)

    def attend(self, on: bool) -> None:
        self._temporal.attend(on)

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._temporal.wake_by(wake)

    def greet(self) -> None:
        self._temporal.greet()

    def stand(self, rules: Mapping[str, str]) -> None:
        self._temporal.stand(rules)

    def close(self, restore: bool = True) -> None:
        try:
            self._spatial.close(restore)
        finally:
            self._temporal.close(restore)


def _merged(seen: Program, mine: Program | None) -> Program:
    """One process as both lanes see it: the driver's objects from one, state and class from the other."""
    if mine is None:
        return seen
    return replace(
        seen,
        state=mine.state,
        klass=mine.klass,
        gpus=mine.gpus or seen.gpus,
        memory_bytes=seen.memory_bytes if seen.memory_bytes is not None else mine.memory_bytes,
        gpu_memory=seen.gpu_memory or mine.gpu_memory,
        notes=(*mine.notes, *seen.notes),
        tenant=seen.tenant or mine.tenant,
        spatial=mine.spatial,
    )
