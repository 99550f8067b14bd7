# SPDX-License-Identifier: Apache-2.0
"""Jobs and programs on several GPUs, whose turns kmod/rm/gang.c and rota.c give as kmod/sched/rotation.c asks them.

By hand: PYTHONPATH=. python tests/unit/rmcore/gang_world.py FIRST LAST plays random mixes.
"""

from __future__ import annotations

import ctypes
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rota_files import MS, NEVER, U64, WINDOW, Gang, Gangs, State, Tenant, Word, build

from tests.seeds import by_hand

ROOM = 24


@dataclass
class Account:
    """A job or a program. `works(gpu, now)`: whether it has something to do there."""

    key: int
    gpus: tuple[int, ...]
    rank: int = 2
    weight: int = 1
    floor: int = 20
    works: Callable[[int, int], bool] = lambda gpu, now: True
    had: dict[int, int] = field(default_factory=dict)
    """GPU -> ns in which it ran there"""
    together: int = 0
    """ns in which it ran on all of its GPUs"""
    longest: int = 0
    """ns for which it did not, while it had work"""
    since: int = 0


class Gpu:
    """What kmod/sched/rotation.c keeps of one, and a foreground that never rests where it is `busy`."""

    def __init__(self, number: int, busy: bool = False) -> None:
        self.number, self.busy = number, busy
        self.state, self.tenants = State(), (Tenant * ROOM)()
        self.state.tenants = self.tenants
        self.on: dict[int, int] = {}
        """account that may run -> from when on"""
        self.off: dict[int, int] = {}
        """account that may not any more -> when it stops"""
        self.foreground_off = False
        self.due = 0
        self.working: set[int] = set()
        """accounts, at the last scan"""


class World:
    """`busy`: GPUs with a foreground that never rests. `late`: ns until who may run does, and who may not stops."""

    def __init__(
        self, library: ctypes.CDLL, accounts: list[Account], *, busy: tuple[int, ...] = (), late: int = MS
    ) -> None:
        self.library, self.accounts, self.late = library, accounts, late
        self.gpus = [Gpu(g, g in busy) for g in range(1 + max(g for a in accounts for g in a.gpus))]
        self.tenants, self.scratch = (Gang * ROOM)(), (Tenant * (ROOM + 1))()
        self.gangs = Gangs(tenants=self.tenants, scratch=self.scratch, room=ROOM)
        self.now = self.begin = 1000 * MS
        self.ran: dict[tuple[int, int], int] = {}
        """(GPU, account) -> ns since the GPU was scanned"""
        for account in accounts:
            account.since = self.now
            account.had = dict.fromkeys(account.gpus, 0)
            for g in account.gpus:
                self.gpus[g].on[account.key] = self.now

    def runs(self, gpu: Gpu, account: Account) -> bool:
        key = account.key
        may = gpu.on.get(key, NEVER) <= self.now or gpu.off.get(key, 0) > self.now
        return may and account.works(gpu.number, self.now) and (not gpu.busy or gpu.foreground_off)

    def scan(self, gpu: Gpu) -> None:
        """As ds_rotation_scan() does it."""
        kept = {t.key: t for t in self.tenants_of(gpu)}
        here = [a for a in self.accounts if gpu.number in a.gpus]
        wanting = [a for a in here if a.works(gpu.number, self.now)]
        made = (Tenant * ROOM)()
        for at, a in enumerate(here):
            made[at] = Tenant(key=a.key, rank=a.rank, weight=a.weight, turn=100 * MS)
            if a.key in kept:
                for name in ("deficit", "over", "saved", "rested"):
                    setattr(made[at], name, getattr(kept[a.key], name))
            if a in wanting:
                made[at].wants = True
                made[at].floor = a.floor * 1000 // sum(b.rank == a.rank for b in wanting)
                made[at].ran = self.ran.pop((gpu.number, a.key), 0)
        count, word = ctypes.c_uint(len(here)), Word()
        self.library.rm_gang_step(
            ctypes.byref(self.gangs), gpu.number, made, ctypes.byref(count), gpu.busy, U64(self.now), ctypes.byref(word)
        )
        gpu.tenants, gpu.state.tenants, gpu.state.count = made, made, count.value
        if word.taken:
            self.library.rm_rota_yield(ctypes.byref(gpu.state), U64(self.now), gpu.busy)
            when = NEVER
        else:
            when = int(self.library.rm_rota_step(ctypes.byref(gpu.state), U64(self.now), gpu.busy))
        window = (word.kind if word.taken else gpu.state.kind) == WINDOW
        gpu.foreground_off = gpu.busy and window
        for a in here:
            gang = word.here and a.key not in {t.key for t in self.tenants_of(gpu)}
            holds = word.taken and word.holder == a.key if gang else not word.taken and gpu.state.holder == a.key
            may = holds or a not in wanting
            if may and a.key not in gpu.on:
                gpu.on[a.key] = self.now + self.late
                gpu.off.pop(a.key, None)
            elif not may and a.key in gpu.on:
                del gpu.on[a.key]
                gpu.off[a.key] = self.now + self.late
        gpu.due = max(min(when, int(word.next), self.now + 20 * MS), self.now + MS // 4)
        for other in self.gpus:
            if word.again >> other.number & 1:
                other.due = min(other.due, self.now + MS // 10)

    def tenants_of(self, gpu: Gpu) -> list[Tenant]:
        return [gpu.tenants[i] for i in range(gpu.state.count)]

    def run(self, seconds: float, tick: int = MS // 2) -> None:
        end = self.now + round(seconds * 1000) * MS
        while self.now < end:
            for gpu in self.gpus:
                if gpu.due <= self.now or self.stirred(gpu):
                    self.scan(gpu)
            for a in self.accounts:
                running = [g for g in a.gpus if self.runs(self.gpus[g], a)]
                for g in running:
                    a.had[g] += tick
                    self.ran[g, a.key] = self.ran.get((g, a.key), 0) + tick
                wants = any(a.works(g, self.now) for g in a.gpus)
                if len(running) == len(a.gpus):
                    a.together += tick
                if len(running) == len(a.gpus) or not wants:
                    a.longest = max(a.longest, self.now - a.since)
                    a.since = self.now
            self.now += tick
        for a in self.accounts:
            a.longest = max(a.longest, self.now - a.since)

    def stirred(self, gpu: Gpu) -> bool:
        """Somebody began or ended to work: a kick, or the driver's word."""
        now = {a.key for a in self.accounts if gpu.number in a.gpus and a.works(gpu.number, self.now)}
        before, gpu.working = gpu.working, now
        return before != now

    def share(self, account: Account) -> float:
        """Of the time: in which it ran on all of its GPUs."""
        return account.together / (self.now - self.begin)


def resting(dice: random.Random) -> Callable[[int, int], bool]:
    """All of its ranks work and rest at the same times, each by some ms off."""
    work, rest = dice.choice((5, 30, 300)) * MS, dice.choice((2, 20, 200)) * MS
    skew = [dice.randrange(2) * MS for _ in range(4)]
    return lambda gpu, now: (now + skew[gpu]) % (work + rest) < work


def mix(library: ctypes.CDLL, seed: int) -> list[str]:
    """Who of a random mix waited for too long."""
    dice = random.Random(seed)
    accounts = []
    for key in range(1, dice.randint(3, 7)):
        account = Account(key, tuple(sorted(dice.sample(range(4), dice.choice((1, 1, 2, 2, 3, 4))))))
        account.weight = dice.choice((1, 1, 1, 2))
        if dice.random() < 0.3:
            account.works = resting(dice)
        accounts.append(account)
    world = World(library, accounts, late=dice.choice((MS // 2, 2 * MS, 5 * MS)))
    world.run(2)
    for account in accounts:
        account.longest, account.since = 0, world.now
    world.run(8)
    most = (1000 if len(accounts) <= 4 else 2000) * MS
    return [f"{a.key} on {a.gpus} waited {a.longest / MS} ms" for a in accounts if a.longest >= most]


def live(seed: int, *, tell: bool = False) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return mix(build(Path(folder)), seed)


if __name__ == "__main__":
    by_hand(live)
