# SPDX-License-Identifier: Apache-2.0
"""The thread of the turns: reads the sensor, decides by the rotation, and switches by two controls a turn.

Looks tell it who takes part; between looks it needs nobody. Whatever ends it, every program runs when it is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from detshare.ctl.backends.root.turns import told
from detshare.ctl.backends.root.turns.acting import ASK_S, Acting
from detshare.ctl.backends.root.turns.foreground import LOOK_S, Foreground
from detshare.ctl.backends.root.turns.members import Cast, Member, by_program
from detshare.ctl.backends.root.turns.pattern import see
from detshare.ctl.backends.root.turns.rests import uneven
from detshare.ctl.backends.root.turns.rotation import Grant, Tenant
from detshare.ctl.backends.root.turns.sleepers import QUICK_S
from detshare.ctl.core.classes import RIVAL_US
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.gputime import Place, Run, Schedule, Standing
from detshare.ctl.core.snapshot import State
from detshare.ctl.gputime.meter import useful_ns

log = logging.getLogger("detshared.turns")

TICK_S: Final = 0.025
"""how often the sensor is read while somebody waits for a turn, or for a gap"""
CALM_S: Final = 0.1
"""the same while nobody does"""
WINDOW_TICK_S: Final = 0.002
AFRESH_S: Final = 0.9 * WINDOW_TICK_S
"""between windows what was read so lately is not read again: questions whether the foreground rests come faster"""
REST_AFTER_S: Final = 0.015
"""a holder that was not seen for so long is asked whether it rests"""
STARTED_NS: Final = 30_000_000
"""who began to run so lately had work then"""
LAGS_S: Final = 1.0
"""an MPS server that was not seen for so long is asked whether it has work"""
LEAST_S: Final = 0.0003
"""between two steps"""
SLOW_S: Final = 0.01
"""where a step takes longer the thread rests for as long: looks and verbs need its lock, too"""


class Turns(Acting):
    """The background of all GPUs of one driver. `start` and `close` once; any thread may call the rest."""

    # -- what looks tell and ask

    def start(self) -> None:
        """Begin to rotate."""
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._closing

    def update(self, cast: Cast) -> None:
        """Who takes part from now on."""
        with self._lock:
            if self._closing:
                return
            mine = (m for m in cast.background if m.gpu in self._foregrounds)  # others are another daemon's
            found = {(m.process, m.gpu): m for m in mine if m.process not in self._excluded}
            living = {process for process, _ in found}
            for process in ({p for p, _ in self._members} | self._hand.waiting) - living:
                self._let_go(process)
            fresh = [m for key, m in found.items() if m.has_more(self._members.get(key))]
            before = {gpu: {p.id for p in self._others.at(gpu)} for gpu in self._foregrounds}
            self._members = found
            self._others.update(cast, self._clock())
            self._recast(before)
            self._untuned.clear()
            self._tell_rotation()
            for member in fresh:
                if self._hand.is_off(member.process):  # what it made while it was off
                    self._switch(member.process, run=False)
            self._woken.notify()

    def _recast(self, before: Mapping[str, set[ProcessId]]) -> None:
        """What was found out about a GPU's foreground is of these programs, in front of somebody."""
        rotated = {gpu for _, gpu in self._members}
        for gpu, fore in self._foregrounds.items():
            if gpu not in rotated:
                self._foregrounds[gpu] = Foreground(changed_at=self._clock())
            elif {p.id for p in self._others.at(gpu)} != before[gpu]:
                fore.recast(self._clock())

    def drop(self, process: ProcessId) -> None:
        """A program is to be left alone until `admit`: it runs when this returns. Raises what the driver refuses."""
        with self._lock:
            self._excluded.add(process)
            self._members = {key: m for key, m in self._members.items() if key[0] != process}
            self._tell_rotation()
            try:
                self._hand.leave(process)
            except BaseException:
                self._excluded.discard(process)  # the next look takes it in again, and its turn tries once more
                raise
            self._forget(process)

    def admit(self, process: ProcessId) -> None:
        """It may take part again, from the next look on."""
        with self._lock:
            self._excluded.discard(process)

    def gpus(self) -> frozenset[str]:
        """GPUs whose log this thread reads."""
        with self._lock:
            return frozenset(gpu for _, gpu in self._members)

    def slice_us(self, process: ProcessId, gpu: str) -> int | None:
        """What the slice of a member's TSGs on a GPU is; None: it takes no part there."""
        with self._lock:
            if (process, gpu) not in self._members:
                return None
            return self._wanted(gpu) if self.running else RIVAL_US

    def schedules(self) -> tuple[Schedule, ...]:
        """The rotation of each GPU that has background programs."""
        with self._lock:
            now = self._clock()
            return tuple(
                told.schedule(gpu, self._rotation, self._foregrounds[gpu], now, self._wanted(gpu))
                for gpu in sorted({gpu for _, gpu in self._members})
            )

    def places(self, process: ProcessId) -> tuple[Place, ...]:
        """A program's place in the rotation of each of its GPUs."""
        with self._lock:
            now = self._clock()
            return tuple(
                told.place(m, self._rotation, self._foregrounds[m.gpu], now)
                for (p, _), m in self._members.items()
                if p == process
            )

    def wanting(self, gpu: str) -> dict[int, float]:
        """PIDs of background programs that have work as far as is known -> seconds since when, at most."""
        with self._lock:
            now, found = self._clock(), {}
            for (process, where), member in self._members.items():
                if where == gpu and (since := self._wants_since(member, now)) is not None:
                    found[process.pid] = now - since
            return found

    def _wants_since(self, member: Member, now: float) -> float | None:
        if member.fixed:
            key = member.process, member.gpu
            if self._lags(member, now):
                return self._lagging.setdefault(key, now)
            self._lagging.pop(key, None)
            return None
        state = self._rotation.states[member.tenant]
        works = not state.rests and (state.barred or not state.missed) and self._computes(member, state.tenant)
        return state.wants_since if works else None

    def _lags(self, server: Member, now: float) -> bool:
        """Whether an MPS server that was not seen for a while has work: nobody else would ask it."""
        return (
            now - self._seen.get(server.tenant, 0.0) >= LAGS_S and self._hand.idle(server.process, server.tsgs) is False
        )

    def _computes(self, member: Member, tenant: Tenant) -> bool:
        """Whether it has work on this GPU: a rank has a context on its neighbours' GPUs, too, and no work there."""
        return member.gpu in tenant.gpus and (len(tenant.gpus) == 1 or (member.process.pid, member.gpu) in self._ran)

    def close(self) -> None:
        """End, and let everybody run. Idempotent."""
        with self._lock:
            self._closing = True
            self._woken.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            for process in {p for p, _ in self._members}:
                self._let_go(process)
            self._members = {}
            self._tell_rotation()

    # -- the thread

    def _run(self) -> None:
        with self._lock:
            while not self._closing:
                since = time.monotonic()
                try:
                    pause = self._turn()
                except Exception:
                    log.exception("a turn failed; every program runs until the next")
                    for process in {p for p, _ in self._members}:
                        self._let_go(process)
                    self._on, self._done, pause = frozenset(), None, 1.0
                if (took := time.monotonic() - since) > SLOW_S:
                    pause = max(pause, took)
                if not self._closing:
                    self._woken.wait(pause if self._members else None)

    def _turn(self) -> float:
        """Look, decide, act; seconds until the next time. Until that is due only questions to foregrounds go on."""
        now = self._clock()
        if self._due - now >= LEAST_S and self._done is not None:
            answered = self._leaves.goes_on(now, self._foreground_rests)
            now = self._clock()
            if not answered:
                return max(LEAST_S, min(self._due - now, self._leaves.wait(now)))
        gpus = {gpu for _, gpu in self._members}
        useful: dict[str, dict[str, float]] = defaultdict(dict)
        for gpu in gpus:
            for tenant, seconds in self._look(gpu, now).items():
                useful[tenant][gpu] = seconds
        for tenant, by_gpu in useful.items():
            self._rotation.worked(tenant, by_gpu)
        full = frozenset(gpu for gpu in gpus if self._foregrounds[gpu].full)
        tight = frozenset(gpu for gpu in gpus - full if self._foregrounds[gpu].tight)
        self._ask(now, full)
        self._ask_due(tight)
        busy = frozenset(gpu for gpu in gpus if not self._foregrounds[gpu].calm(self.sensor.now_ns(gpu)))
        wanted = self._rotation.step(now, full, busy, tight)
        self._act(wanted)
        return self._pause(full)

    def _pause(self, full: frozenset[str]) -> float:
        for gpu in self._leaves.gpus:
            if self._windows_on(gpu):  # since this step
                self._leaves.drop(gpu)
        now = self._clock()
        pause, asks = self._rest(now, full), self._leaves.wait(now)
        left = any(not self._foregrounds[gpu].full for gpu in self._leaves.gpus)  # by its last answer
        self._due = now + (min(pause, asks) if left else pause)
        return max(LEAST_S, min(pause, asks))

    def _rest(self, now: float, full: frozenset[str]) -> float:
        if any(grant.window for grant in self._rotation.grants.values()) or self._rotation.passes(now):
            return WINDOW_TICK_S
        wake = self._rotation.wake(now)
        soon = self._doubted or self._sleepers.expects(now)
        calm = min((f.look_s for gpu, f in self._foregrounds.items() if self._others.at(gpu)), default=CALM_S)
        tick = QUICK_S if soon else TICK_S if full or len(self._rotation.states) > 1 else calm
        return tick if wake is None else min(tick, wake - now)

    def _look(self, gpu: str, now: float) -> dict[str, float]:
        """Read the log of a GPU; tenant -> seconds in which it could work. Now and then, judge the foreground."""
        if self._foregrounds[gpu].full and now - self._read[gpu] < AFRESH_S:
            return {}
        self._read[gpu] = now
        closed = self.sensor.poll(gpu)
        if closed is None:
            self._others.look(gpu, None, now)
            return self._guess(gpu, now)
        tenant_of, opened = self._tenants.get(gpu, {}), self.sensor.open(gpu)
        self._others.look(gpu, {run[0] for run in (*closed, *opened)}, now)
        useful: dict[str, float] = defaultdict(float)
        self._foregrounds[gpu].follow(closed, opened, tenant_of)
        for pid, runs in by_program((*closed, *opened), tenant_of).items():
            tenant = tenant_of[pid]
            self._ran.add((pid, gpu))
            rested = (tenant, gpu) in self._rested
            for some in [[run] for run in runs] if rested else [runs]:
                useful[tenant] += self._follow(tenant, gpu, some, now)
        if opened:
            self._credited[gpu] = (opened[0].start_ns, useful_ns(opened[0]))
        if now - self._looked[gpu] >= self._foregrounds[gpu].look_s:
            self._looked[gpu] = now
            self._judge(gpu, tenant_of.keys(), now)
        return useful

    def _follow(self, tenant: str, gpu: str, runs: Sequence[Run], now: float) -> float:
        """Seconds in which it could work of runs of one member, oldest first: one alone where it was found at rest."""
        start_ns = runs[0].start_ns
        if start_ns <= self._rested.get((tenant, gpu), 0):
            self._ask_resting(tenant, now)  # the last that the GPU ran: the log cannot tell whether it works again
            return 0.0
        state = self._rotation.states.get(tenant)  # an MPS server has none
        if state is not None and state.rests and (tenant, gpu) in self._rested:
            waited_ns = 2000 * self._wanted(gpu)  # for the end of another one's slice, and its own
            self._sleepers.woke(tenant, start_ns - self._rested[tenant, gpu] - waited_ns, now)
        self._came(tenant, gpu, now)
        self._started[tenant, gpu] = runs[-1].start_ns
        if not self._fills(tenant, gpu, now):
            self._rotation.ran(tenant, now, gpu)
        else:
            self._rested.pop((tenant, gpu), None)
        if not self._others.at(gpu):
            slice_ns = 1000 * self._wanted(gpu)
            if any(run.end_ns - run.start_ns < slice_ns for run in runs):
                self._sleepers.yielded(tenant, now)
        return (sum(map(useful_ns, runs)) - self._credit(gpu, runs[0])) / 1e9

    def _credit(self, gpu: str, run: Run) -> int:
        """Nanoseconds of a run that were counted while it went on."""
        start_ns, counted = self._credited.get(gpu, (0, 0))
        return counted if start_ns == run.start_ns else 0

    def _guess(self, gpu: str, now: float) -> dict[str, float]:
        """Without the log a holder is taken to work for all of its turn."""
        useful: dict[str, float] = {}
        passed = now - self._looked[gpu] if self._looked[gpu] else 0.0
        self._looked[gpu] = now
        for key in self._rotation.grants:
            if gpu in self._rotation.states[key].tenant.gpus:
                self._came(key, gpu, now)
                self._rotation.ran(key, now)
                useful[key] = passed
        self._rouse(gpu, now)
        return useful

    def _ask_resting(self, tenant: str, now: float) -> None:
        if now - self._asked[tenant] >= ASK_S:
            self._asked[tenant] = now
            if any(self._hand.idle(m.process, m.tsgs) is False for m in self._members.values() if m.tenant == tenant):
                self._rotation.ran(tenant, now)
                self._rested = {key: at for key, at in self._rested.items() if key[0] != tenant}

    def _rouse(self, gpu: str, now: float) -> None:
        """Nothing shows who of those at rest works again: they are asked, soon at first, for beside the holder's short
        slice neither would get on."""
        for (process, where), member in self._members.items():
            if where != gpu or member.fixed or self._rotation.standing(member.tenant) is not Standing.RESTS:
                continue
            rested = self._rested.get((member.tenant, gpu))
            since_s = (self.sensor.now_ns(gpu) - rested) / 1e9 if rested is not None else LOOK_S
            asked = self._asked[member.tenant]
            if now - asked < min(LOOK_S, max(QUICK_S, since_s / 2)):
                continue
            self._asked[member.tenant] = now
            if self._hand.idle(process, member.tsgs) is not True:
                if rested is not None:
                    self._sleepers.woke(member.tenant, 0 if since_s < 2 * TICK_S else round(since_s * 1e9), now)
                self._rotation.ran(member.tenant, now)

    def _judge(self, gpu: str, background: Collection[int], now: float) -> None:
        fore = self._foregrounds[gpu]
        if not self._others.at(gpu):
            fore.gone(now)
        for span_s in fore.spans_s(now) if self._others.at(gpu) else ():
            end_ns, floor = self.sensor.now_ns(gpu), self._rotation.floors(gpu)
            begin_ns = end_ns - round(span_s * 1e9)
            sight = see(self.sensor.since(gpu, begin_ns), background, begin_ns, end_ns)
            slice_us = self._wanted(gpu)
            full = fore.suspects(sight, floor, slice_us)
            taken = not full or self._works(gpu)
            rests = full and taken and fore.lingers(end_ns) and self._foreground_rests(gpu) is True
            fore.saw(sight, now, rests, floor, taken, slice_us)

    def _works(self, gpu: str) -> bool:
        """Whether one of those who may run now has work, as far as the driver can tell."""
        holders = [m for (_, g), m in self._members.items() if g == gpu and m.tenant in self._rotation.grants]
        return bool(holders) and not all(self._rests(m) is True for m in holders if not m.fixed)

    def _rests(self, member: Member) -> bool | None:
        """Whether a member has no work; None where the driver does not say."""
        restless = self._others.at(member.gpu) and self._sleepers.restless(member.tenant, self._clock())
        return False if restless else self._hand.idle(member.process, member.tsgs)

    def _fills(self, tenant: str, gpu: str, now: float) -> bool:
        """Whether a tenant may stay on beside the holder, its equal: each computes between the other's launches."""
        states = self._rotation.states
        both = [tenant, *(k for k in self._rotation.grants if gpu in states[k].tenant.gpus)]
        if self._others.at(gpu) or not all(self._sleepers.restless(k, now) for k in both):
            return False
        return len({(states[k].tenant.rank, states[k].tenant.weight) for k in both}) == 1

    def _ask(self, now: float, full: frozenset[str]) -> None:
        """Whether holders that were not seen lately rest, and foregrounds that leave nothing."""
        for key, grant in list(self._rotation.grants.items()):
            if not grant.window:
                self._ask_holder(key, grant, now)
        for key, gpus in self._rotation.unentered(now).items():
            members = [m for m in self._members.values() if m.tenant == key and m.gpu in gpus]
            if any(self._hand.idle(m.process, m.tsgs) is False for m in members):
                self._rotation.let_in(key, now)
        for gpu in self._foregrounds:
            if gpu not in full or self._windows_on(gpu):
                self._leaves.drop(gpu)
                continue
            for answer in self._leaves.look(gpu, now, lambda gpu=gpu: self._foreground_rests(gpu)):  # type: ignore[misc]
                self._foregrounds[gpu].asked(answer, now, self._rotation.floors(gpu))

    def _ask_due(self, tight: frozenset[str]) -> None:
        """Whether holders that a busy foreground leaves less than their floor have a use for the rest of it."""
        for key in [k for k, g in self._rotation.grants.items() if tight and not g.window and self._rotation.due(k)]:
            members = [m for m in self._members.values() if m.tenant == key and not m.fixed]
            if tight & {m.gpu for m in members} and all(self._rests(m) is True for m in members):
                self._rotation.forfeit(key)

    def _windows_on(self, gpu: str) -> bool:
        return any(g.window and gpu in self._rotation.states[k].tenant.gpus for k, g in self._rotation.grants.items())

    def _ask_holder(self, key: str, grant: Grant, now: float) -> None:
        short = self._sleepers.holds(key, grant.begun, now)
        after_s, every_s, started_ns = (QUICK_S, QUICK_S, QUICK_S * 1e9) if short else (REST_AFTER_S, ASK_S, STARTED_NS)
        every_s = uneven(every_s, self._asked[key])
        if now - grant.begun < after_s or now - self._asked[key] < every_s or not self._rotation.rivals(key):
            return
        if any(self.sensor.now_ns(gpu) - start_ns < (started_ns if self._others.at(gpu) else 1e9 * QUICK_S)
               for (tenant, gpu), start_ns in self._started.items() if tenant == key):  # fmt: skip
            return  # it came back after the foreground: it has work
        self._asked[key] = now
        members = [m for m in self._members.values() if m.tenant == key and not m.fixed]
        answers = [self._rests(m) for m in members]
        if answers and all(answer is True for answer in answers) and key not in self._doubted and not short:
            self._doubted.add(key)
            self._asked[key] = now - ASK_S + QUICK_S  # between two steps a program rests for a moment
            return
        self._doubted.discard(key)
        unseen = now - max(self._seen.get(key, 0.0), grant.begun) > 2 * REST_AFTER_S
        if (answers and all(answer is True for answer in answers)) or (None in answers and unseen):
            self._rotation.rest(key)
            self._sleepers.rested(key, grant.begun, now)
            asked_ns = round((self._clock() - now) * 1e9)
            for member in members:
                self._rested[key, member.gpu] = self.sensor.now_ns(member.gpu) + asked_ns

    def _foreground_rests(self, gpu: str) -> bool | None:
        programs = [p for p in self._others.at(gpu) if p.state is not State.MPS_CLIENT]
        return self._hand.idle_all((p.id, [t for t in p.compute if t.gpu == gpu]) for p in programs)
