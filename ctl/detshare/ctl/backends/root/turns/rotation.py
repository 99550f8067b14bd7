# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is: the rule of turns, windows and floors as a pure function of what was told. No clock, no driver.

A tenant holds all of its GPUs at once, so that the ranks of one job never wait for each other. Turns go round, and last
by weight: each tenant has a count of useful time divided by its weight, and whose count is behind has a longer turn
until it is not. Where the foreground leaves no useful gaps (`full`) nobody has turns, but each class has its floor, in
whole windows. Where it has most of the time (`tight`) a class that gets less than its floor has the rest of it so, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.core.gputime import Standing

UNIT_S: Final = 0.2
"""a turn at weight 1: each change of turns may meet a request of the foreground, and delays that by a millisecond"""
MOST_CORRECTION: Final = 0.5
"""of a turn's length, by which it is made longer or shorter"""
ROUND_S: Final = 0.8
"""a round is not longer, so nobody waits for more than a second"""
WAIT_S: Final = 0.9
"""nobody of two or three waits longer for a turn, whatever the weights and who came back; of more, twice as long"""
SHORTEST_S: Final = 0.02
WINDOW_S: Final = 0.01
"""a window of a floor, from the first moment in which the background runs; shorter where several share the floor"""
LEAST_WINDOW_S: Final = 0.004
"""a shorter one is not worth its two switches"""
WINDOWS_S: Final = 0.6
"""in so long each of those who share a floor has a window: with the tick that it lasts longer none waits a second"""
ENTRY_S: Final = 0.05
"""a window ends if nothing ran for so long: there was no work"""
MOST_ENTRY_S: Final = 0.25
"""or, where there is work, after so long: a foreground that never rests has 20 ms before each of the background"""
MISSED_S: Final = 0.5
"""who had a window and no use for it has no other for so long"""
PATIENCE_S: Final = 0.03
"""a turn lasts so much longer, at most, until its end meets no request of the foreground"""
USED_PART: Final = 0.25
"""who had less of its last window, since others who cannot be off were on, has no other before a turn that waits"""
KEPT_S: Final = 0.03
"""for which that turn waits already"""
CREDIT_S: Final = 0.1
"""useful time by weight that who comes back from a rest may be behind the others"""
SAVED_WINDOWS: Final = 3
"""a floor that could not be used is not saved up for longer"""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who has turns: one program, or those of one container, job or name."""

    key: str
    gpus: frozenset[str]
    rank: int
    weight: int = 1
    floor: float = 0.0
    apart: Mapping[str, float] = field(default_factory=dict, hash=False)
    """GPU -> its floor there, where that is another"""

    def floor_on(self, gpu: str) -> float:
        """Its floor on one of its GPUs."""
        return self.apart.get(gpu, self.floor)


@dataclass(frozen=True, slots=True)
class Grant:
    """A turn or a window. Seconds of the caller's clock."""

    key: str
    window: bool
    begun: float
    until: float


@dataclass(slots=True)
class _State:
    tenant: Tenant
    count: float = 0.0
    """useful seconds by weight"""
    rests: bool = False
    wants_since: float = 0.0
    """when it came, or worked again"""
    waits_since: float = 0.0
    entered: bool = False
    """it ran in its present window"""
    window_at: float = 0.0
    """when its last window began"""
    missed: bool = False
    """it did not run in that"""
    barred: bool = False
    """though it had work then"""
    used: float = 0.0
    """useful seconds of that"""
    yields: bool = False
    """that was next to nothing, and nobody had a turn since"""
    woken: bool = False
    """it came back from a rest, and had no turn since"""
    front: bool = False
    """it is let through"""


@dataclass(slots=True)
class Rotation:
    """The state of all GPUs. Feed it, then ask `step`."""

    states: dict[str, _State] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    owed: dict[tuple[str, int], float] = field(default_factory=dict)
    """(GPU, rank) -> seconds of its floor that are due"""
    now: float = 0.0
    scarce: frozenset[str] = frozenset()
    """GPUs on which floors count for the highest class, too"""
    full: frozenset[str] = frozenset()
    """those of them on which nobody has turns"""

    def update(self, tenants: Iterable[Tenant], now: float) -> None:
        """Who takes part from now on. A newcomer begins with the lowest count that somebody has."""
        found = {tenant.key: tenant for tenant in tenants}
        for gone in self.states.keys() - found.keys():
            del self.states[gone]
            self.grants.pop(gone, None)
        least = self._least()
        for key, tenant in found.items():
            if key in self.states:
                more = tenant.gpus - self.states[key].tenant.gpus
                if key in self.grants and any(self.states[k].tenant.gpus & more for k in self.grants if k != key):
                    del self.grants[key]  # one holder of a GPU: who came there waits
                    self.states[key].waits_since = now
                self.states[key].tenant = tenant
            else:
                self.states[key] = _State(tenant, least, wants_since=now, waits_since=now)
        places = {(gpu, tenant.rank) for tenant in found.values() for gpu in tenant.gpus}
        self.owed = {place: self.owed.get(place, 0.0) for place in places}

    def _least(self) -> float:
        return min((s.count for s in self.states.values() if not s.rests), default=0.0)

    def worked(self, key: str, seconds: Mapping[str, float]) -> None:
        """A tenant could work for so long on each GPU since the last call; a job's ranks work at the same time.

        Less than nothing takes back what was counted of a run that ended earlier than was thought.
        """
        state = self.states.get(key)
        if state is None:
            return
        useful = max(seconds.values(), default=0.0)
        state.count += useful / state.tenant.weight
        state.used += useful
        for gpu, used in seconds.items():
            place = (gpu, state.tenant.rank)
            if place in self.owed:
                self.owed[place] = max(self.owed[place] - used, -WINDOW_S)

    def ran(self, key: str, now: float, gpu: str = "") -> None:
        """A tenant was seen on a GPU: it has work, and a window of its own there begins to count."""
        state = self.states.get(key)
        if state is None:
            return
        state.missed = False
        if state.rests:
            state.count = max(state.count, self._least() - CREDIT_S)
            state.rests, state.wants_since, state.waits_since, state.woken = False, now, now, True
        grant = self.grants.get(key)
        if grant is None or not grant.window or state.entered:
            return
        if not gpu or self._accrues(gpu, state.tenant.rank):
            state.entered = True
            self.grants[key] = Grant(key, True, grant.begun, now + self._window(state.tenant))

    def rest(self, key: str) -> None:
        """A holder has no work: its turn ends, and until it works again it waits for none."""
        if key in self.states:
            self.states[key].rests = True
            self.grants.pop(key, None)

    def unentered(self, now: float) -> dict[str, frozenset[str]]:
        """Who had a window, on which GPUs, and did not run in it so far: is that for want of work?"""
        windows = {key: grant for key, grant in self.grants.items() if grant.window and not self.states[key].entered}
        late = [self.states[key].tenant for key, g in windows.items() if g.until <= now < g.begun + MOST_ENTRY_S]
        return {each.key: frozenset(gpu for gpu in each.gpus if self._accrues(gpu, each.rank)) for each in late}

    def let_in(self, key: str, now: float) -> None:
        """It has work: the foreground let nobody in yet."""
        begun, self.states[key].barred = self.grants[key].begun, True
        self.grants[key] = Grant(key, True, begun, min(now + ENTRY_S, begun + MOST_ENTRY_S))

    def standing(self, key: str) -> Standing:
        """How a tenant stands. KeyError for one that takes no part."""
        if key in self.grants:
            return Standing.WINDOW if self.grants[key].window else Standing.HOLDS
        return Standing.RESTS if self.states[key].rests else Standing.WAITS

    def step(
        self, now: float, full: Collection[str] = (), busy: Collection[str] = (), tight: Collection[str] = ()
    ) -> frozenset[str]:
        """Who may run from now on: holders, and those without work.

        `full`: GPUs whose foreground leaves no gaps. `busy`: those where a change would meet its next request.
        `tight`: those where it has most of the time.
        """
        self.full, self.scarce = frozenset(full), frozenset(full) | frozenset(tight)
        self._accrue(now)
        self._wonder(now, full)
        self._let_through(now)
        self._end(now, full, busy)
        self._grant(now, full)
        resting = {key for key, state in self.states.items() if state.rests and not state.tenant.gpus & set(full)}
        return frozenset(self.grants) | resting

    def _wonder(self, now: float, full: Collection[str]) -> None:
        """Where only windows are open all are off, and nobody can tell who has work again: a window does."""
        for state in self.states.values():
            if state.rests and self._full(state.tenant, full):
                state.rests, state.wants_since, state.waits_since = False, now, now

    def _let_through(self, now: float) -> None:
        """Who came back from a rest and had less than a holder is next; its burst may be short."""
        for state in self.states.values():
            if not state.woken:
                continue
            gpus, rank = state.tenant.gpus, state.tenant.rank
            holders = (self.states[key] for key in self.grants)
            if any(s.tenant.gpus & gpus and s.tenant.rank <= rank and s.count >= state.count for s in holders):
                state.front = True
                self._hurry(gpus, now, rank)

    def wake(self, now: float) -> float | None:
        """When a step may decide otherwise if nothing is told; None: never."""
        times = [g.until for g in self.grants.values() if g.window or (g.until > now and self.rivals(g.key))]
        for (gpu, rank), owed in self.owed.items():
            if not self._accrues(gpu, rank) or not (floor := self._floor(gpu, rank)):
                continue
            waiting = [s for k, s in self.states.items() if gpu in s.tenant.gpus and s.tenant.rank == rank
                       and not s.rests and k not in self.grants]  # fmt: skip
            if waiting:
                again = min(s.window_at + MISSED_S if s.missed else now for s in waiting)
                at = max(again, now + max(0.0, self._window_at(gpu, rank) - owed) / floor)
                times += [at] if at > now else []  # what is due waits for the end of a turn or window
        return min(times, default=None)

    # -- floors

    def _floor(self, gpu: str, rank: int) -> float:
        here = (s.tenant for s in self.states.values() if gpu in s.tenant.gpus)
        return max((tenant.floor_on(gpu) for tenant in here if tenant.rank == rank), default=0.0)

    def _window_at(self, gpu: str, rank: int) -> float:
        """How long a class's windows are on a GPU: who share its floor have one each in `WINDOWS_S`."""
        sharing = sum(s.tenant.rank == rank and gpu in s.tenant.gpus and not s.rests for s in self.states.values())
        share = self._floor(gpu, rank) / max(1, sharing)
        return min(WINDOW_S, max(LEAST_WINDOW_S, WINDOWS_S * share))

    def _window(self, tenant: Tenant) -> float:
        return min(self._window_at(gpu, tenant.rank) for gpu in tenant.gpus)

    def floors(self, gpu: str) -> float:
        """What all classes together have at least."""
        return sum(self._floor(gpu, rank) for place, rank in self.owed if place == gpu)

    def holds_up(self, gpu: str, full: bool) -> bool:
        """Whether a window is open for which the foreground waits. Where it leaves gaps (not `full`) windows lie in
        them, but for those of the first class, which is owed one only if all gaps are less than its floor, and of one
        that is owed another already: the gaps gave it nothing."""
        ranks = {self.states[key].tenant.rank for key, grant in self.grants.items()
                 if grant.window and gpu in self.states[key].tenant.gpus}  # fmt: skip
        return any(full or rank >= self._top(gpu) or self._short(gpu, rank) for rank in ranks)

    def _short(self, gpu: str, rank: int) -> bool:
        """Whether a class is owed two windows beside a foreground that has most of the time."""
        return gpu in self.scarce and self.owed[gpu, rank] >= 2 * self._window_at(gpu, rank)

    def _accrues(self, gpu: str, rank: int) -> bool:
        """Whether a class lives off its floor on a GPU: the foreground, or a higher class with work, has the rest."""
        return gpu in self.scarce or rank < self._top(gpu)

    def _top(self, gpu: str) -> int:
        ranks = (s.tenant.rank for s in self.states.values() if gpu in s.tenant.gpus and not s.rests)
        return max(ranks, default=0)

    def _accrue(self, now: float) -> None:
        passed, self.now = max(0.0, now - self.now) if self.now else 0.0, now
        for gpu, rank in self.owed:
            if self._accrues(gpu, rank):
                most = SAVED_WINDOWS * WINDOW_S
                self.owed[gpu, rank] = min(most, self.owed[gpu, rank] + passed * self._floor(gpu, rank))
            else:
                self.owed[gpu, rank] = 0.0

    # -- turns

    def _full(self, tenant: Tenant, full: Collection[str]) -> bool:
        return any(gpu in full for gpu in tenant.gpus)

    def rivals(self, key: str) -> list[_State]:
        """Tenants with work that wait for a GPU of this one."""
        gpus = self.states[key].tenant.gpus
        return [s for k, s in self.states.items() if k != key and k not in self.grants and not s.rests
                and s.tenant.gpus & gpus]  # fmt: skip

    def passes(self, now: float) -> bool:
        """Whether a turn is over that is prolonged."""
        return any(not g.window and now >= g.until and self._wanting(g.key) for g in self.grants.values())

    def _end(self, now: float, full: Collection[str], busy: Collection[str]) -> None:
        for key, grant in list(self.grants.items()):
            state = self.states[key]
            if grant.window:
                over = now >= grant.until
            else:
                outranked = any(state.tenant.rank < self._top(gpu) for gpu in state.tenant.gpus)
                late = PATIENCE_S if state.tenant.gpus & frozenset(busy) else 0.0
                passes = now >= grant.until + late and bool(self._wanting(key))
                over = passes or outranked or self._full(state.tenant, full) or self.due(key)
            if over:
                del self.grants[key]
                state.waits_since = now
                state.missed = grant.window and not state.entered
                state.yields = grant.window and state.used < USED_PART * self._window(state.tenant)
                if state.missed and not self._full(state.tenant, full):
                    state.rests = True  # it stays on the run list: what it begins is seen
                if state.missed and not any(s.tenant.rank == state.tenant.rank for s in self.rivals(key)):
                    self.forfeit(key)  # nobody came: none is due again at once

    def forfeit(self, key: str) -> None:
        """A tenant has no use for what its class is owed on its GPUs."""
        tenant = self.states[key].tenant
        for gpu in tenant.gpus:
            self.owed[gpu, tenant.rank] = min(self.owed[gpu, tenant.rank], 0.0)

    def _wanting(self, key: str) -> list[_State]:
        """Rivals whose turn could follow: equals, and lower classes whose window is due."""
        rank = self.states[key].tenant.rank
        return [s for s in self.rivals(key) if s.tenant.rank >= rank or self.due(s.tenant.key)]

    def due(self, key: str) -> bool:
        """Whether a tenant's class is owed a window."""
        tenant = self.states[key].tenant
        places = {gpu for gpu in tenant.gpus if self._accrues(gpu, tenant.rank)}
        return bool(places) and not self._deprives(self.states[key], tenant.gpus - places) and all(
            self.owed[gpu, tenant.rank] >= self._window_at(gpu, tenant.rank) - 1e-9 for gpu in places
        )  # fmt: skip

    def _deprives(self, job: _State, gpus: frozenset[str]) -> bool:
        """Whether a job that is owed windows elsewhere would take these GPUs from a rival that has turns there, and had
        less than it, or waits for a round."""
        return bool(gpus) and any(
            s.tenant.gpus & gpus and s.tenant.rank >= job.tenant.rank and self._turns(s, self.full)
            and (s.count < job.count or self.now - s.waits_since >= ROUND_S)
            for s in self.rivals(job.tenant.key)
        )  # fmt: skip

    def _turns(self, state: _State, full: Collection[str]) -> bool:
        """Whether it may have turns, as far as the foreground and higher classes go."""
        gpus, rank = state.tenant.gpus, state.tenant.rank
        return not self._full(state.tenant, full) and all(rank >= self._top(gpu) for gpu in gpus)

    def _grant(self, now: float, full: Collection[str]) -> None:
        waiting = [s for k, s in self.states.items() if k not in self.grants and not s.rests]
        taken = {gpu for key in self.grants for gpu in self.states[key].tenant.gpus}
        if all(state.tenant.gpus <= taken for state in waiting):
            return
        turning = [s for s in waiting if self._turns(s, full)]
        due = [s for s in waiting if self.due(s.tenant.key) and not (s.missed and now - s.window_at < MISSED_S)
               and not (s.yields and any(t.tenant.gpus & s.tenant.gpus and now - t.waits_since >= KEPT_S
                                         for t in turning if t is not s))]  # fmt: skip
        turns = [s for s in turning if s not in due]
        in_order = sorted(turns, key=lambda state: turn_order(state, now))
        for window, group in ((True, sorted(due, key=_window_order)), (False, in_order)):
            for state in group:
                gpus = state.tenant.gpus
                if gpus & taken:
                    if gpus - taken:  # a job of several GPUs: those that are free wait for the rest
                        if any(s is not state and s.tenant.gpus & gpus - taken for s in waiting):
                            self._hurry(gpus, now)  # others wait for them, too
                        taken |= gpus
                    continue
                taken |= gpus
                until = now + (ENTRY_S if window else self.length(state))
                state.entered = state.barred = state.woken = state.front = False
                state.used = 0.0
                for other in self.states.values() if not window else ():
                    other.yields &= not other.tenant.gpus & gpus
                state.window_at = now if window else state.window_at
                self.grants[state.tenant.key] = Grant(state.tenant.key, window, now, until)

    def _hurry(self, gpus: frozenset[str], now: float, most_rank: int | None = None) -> None:
        """Somebody needs these GPUs who is not to wait long: turns there end as soon as they are worth it."""
        for key, grant in self.grants.items():
            tenant = self.states[key].tenant
            if not grant.window and tenant.gpus & gpus and (most_rank is None or tenant.rank <= most_rank):
                self.grants[key] = Grant(key, False, grant.begun, min(grant.until, max(now, grant.begun + SHORTEST_S)))

    def length(self, state: _State) -> float:
        """A turn by weight among those with work who share a GPU with it and rank alike."""
        tenant = state.tenant
        alike = (s for s in self.states.values() if s.tenant.gpus & tenant.gpus and s.tenant.rank == tenant.rank)
        peers = [s for s in alike if not s.rests] or [state]
        whole = sum(s.tenant.weight for s in peers)
        turn = tenant.weight * min(UNIT_S / min(s.tenant.weight for s in peers), ROUND_S / whole)
        behind = tenant.weight * (sum(s.count * s.tenant.weight for s in peers) / whole - state.count)
        most = MOST_CORRECTION * turn
        waits = [s.waits_since for s in self.rivals(tenant.key) if s.tenant.rank >= tenant.rank]
        left = min(waits, default=self.now) + (WAIT_S if len(peers) < 4 else 2 * WAIT_S) - self.now
        return max(SHORTEST_S, min(turn + min(max(behind, -most), most), left))


def turn_order(state: _State, now: float) -> tuple[bool, bool, float, float, str]:
    """Whoever waits longest is next, but for those who are let through; nobody waits for ever while others are."""
    in_time = now - state.waits_since < ROUND_S
    return in_time, in_time and not state.front, state.waits_since, state.count, state.tenant.key


def _window_order(state: _State) -> tuple[float, float, str]:
    """Whoever had none for longest: a turn may have ended for this window."""
    return state.window_at, state.waits_since, state.tenant.key
