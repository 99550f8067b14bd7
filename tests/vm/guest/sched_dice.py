# SPDX-License-Identifier: Apache-2.0
"""Seeded dice over the module's turns: programs come, change, stop and go, and the driver is slow or refuses.

One seed is one life; DETSHARE_DICE names them, with spaces between. `DETSHARE_DICE_TELL=1` says what happens.
Shares, floors and waits are judged with DETSHARE_ALONE=1: a guest that is late itself makes them late.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import comes, until
from tests.vm.guest.kmod_failures import fail
from tests.vm.guest.kmod_tools import PID, TENANT, load, row, unload
from tests.vm.guest.nvsim_rm import Rm, number, status
from tests.vm.guest.nvsim_work import DOORBELL_SIZE, ENDLESS, MS, Doorbell, usermode
from tests.vm.guest.sched_answers import PAUSE, QUESTION, WAITING
from tests.vm.guest.sched_hidden import Play, Program, program, started
from tests.vm.guest.sched_tools import Worker, family, tsgs, worker

__all__ = ["family", "program", "worker"]  # fixtures

SEEDS = [int(each) for each in os.environ.get("DETSHARE_DICE", "1 2 3").split()]
ALONE = os.environ.get("DETSHARE_ALONE") == "1"
TELL = os.environ.get("DETSHARE_DICE_TELL") == "1"
TUNE = number("NVA06C_CTRL_CMD_SET_TIMESLICE")
RANK = {"high": 4, "normal": 3, "low": 2, "idle": 1, "": 0}
SLICE_US = 2048
LOOK_S, MOST_LOOK_S = 0.03, 0.1
"""a guest that does not run for longer than that has not lived meanwhile"""
SLACK_S, SETTLE_S, STEADY_S = 0.4, 3.0, 6.0
LEARNS_S = 2.5
"""until the foreground is known to leave no gaps, after it left some"""
OWES_S = 2.0
"""for windows that were too long, as they are where a guest is late: RM_ROTA_OWED_NS"""
HEALS_S = 1.5
"""after the driver refused something"""
NEVER_RESTS = ("endless", "pair", "deep")
EVENTS = ("enter", "enter", "kill", "steer", "steer", "steer", "weigh", "pause", "resume", "resume", "stop", "go_on",
          "release", "fail", "slow", "quick", "rows")  # fmt: skip
BACK, FRONT = ("endless", "endless", "pair", "deep", "burst", "maker"), ("endless", "burst", "burst", "deep")
BACK_CLASSES, FRONT_CLASSES = (*("low",) * 7, "idle", "idle", "normal", ""), ("high", "high", "high", "normal")
MOST = 9


def maker(gpu: int) -> Play:
    """An endless kernel, and new channel groups all the time, each with a kernel of its own."""
    rm = Rm.start(minor=gpu)
    file = rm.open(f"nvidia{gpu}")
    assert rm.map(usermode(rm), DOORBELL_SIZE, file) == 0
    bell, first = Doorbell(rm, fd=file), started(rm)
    first.submit(bell, ENDLESS)
    yield {"clients": [rm.client]}
    while True:
        another = started(rm)
        another.submit(bell, 2 * MS)
        time.sleep(0.01)
        another.close()
        for handle in (another.group, another.memory, another.space):
            rm.free(handle)
        os.close(rm.extra.pop())


@dataclass
class Player:
    who: Worker | Program
    gpu: int
    client: int
    kind: str
    demand: float = 1.0
    klass: str = ""
    weight: int = 1
    tenant: str = ""
    paused: bool = False
    stopped: bool = False
    used: int = 0
    since: float = 0.0
    allowed: float = 0.0

    def __str__(self) -> str:
        name = f"{self.kind} {self.who.pid} gpu{self.gpu} {self.klass or '-'}"
        more = [f"x{self.weight}", self.tenant, "paused" * self.paused, "stopped" * self.stopped]
        return " ".join([name, *filter(None, more)])


class Dice:
    """`broken` says in words what was not kept."""

    def __init__(self, link: genl.DetShare, worker: Callable[..., Worker], program: Callable[..., Program], seed: int):
        self.link, self.worker, self.program = link, worker, program
        self.random, self.seed = random.Random(seed), seed
        self.players: list[Player] = []
        self.broken: list[str] = []
        self.lived = 0.0
        self.looked = time.monotonic()
        self.quiet_until = 0.0
        self.slow = False
        self.number = 0
        self.floors = {"low": 20, "idle": 10}
        self.gpus = (0,) if self.random.random() < 0.6 else (0, 1)
        self.rows()

    def say(self, text: str) -> None:
        if TELL:
            print(f"{self.lived:8.3f} {text}", flush=True)

    def breaks(self, text: str) -> None:
        self.broken.append(f"{self.lived:.3f} {text}; all: {'; '.join(map(str, self.players))}; floors {self.floors}")
        self.say(f"BROKEN {self.broken[-1]}")

    # -- what happens

    def rows(self) -> None:
        """The classes, with floors of this life's."""
        self.floors = {"low": self.random.choice((0, 20, 20, 50, 200)), "idle": self.random.choice((0, 10, 50))}
        self.link.class_set("high", slice_us=20_000, level=genl.DETSHARE_LEVEL_HIGH, turn_rank=4)
        self.link.class_set("normal", level=genl.DETSHARE_LEVEL_MEDIUM, turn_rank=3)
        for name, rank, slice_us in (("low", 2, 50), ("idle", 1, 20)):
            self.link.class_set(
                name, slice_us=slice_us, level=genl.DETSHARE_LEVEL_LOW, floor_permille=self.floors[name],
                turn_us=100_000, turn_rank=rank,
            )  # fmt: skip
        self.say(f"floors {self.floors}")

    def start(self, kind: str, gpu: int) -> Player:
        at, demand = ("--gpu", gpu, "--quiet"), 1.0
        who: Worker | Program
        if kind == "endless":
            who = self.worker("nvbackground", "--endless", *at)
        elif kind == "pair":
            who = self.worker("nvbackground", "--endless", "--tsgs", 2, *at)
        elif kind == "deep":
            who = self.worker("nvbackground", "--us", self.random.choice((3000, 20_000)), "--depth", 250, *at)
        elif kind == "maker":
            who = self.program(maker, gpu)
        else:
            us, period = self.random.choice(((200, 5), (1000, 20), (1500, 20), (8000, 30), (2000, 2), (30_000, 200)))
            demand = us / 1000 / period
            who = self.worker("nvlatency", "--us", us, "--period-ms", period, *at)
        client = who.ready["client"] if isinstance(who, Worker) else who.clients[0]
        player = Player(who, gpu, client, kind, demand, since=self.lived)
        self.players.append(player)
        return player

    def enter(self) -> None:
        self.number += 1
        gpu = self.random.choice(self.gpus)
        which = self.random.choice(("back", "back", "back", "back", "front", "job"))
        if which == "job" and len(self.gpus) == 2:
            name = f"job-{self.seed}-{self.number}"
            for each in self.gpus:
                rank = self.start("endless", each)
                rank.tenant = name
                self.link.tenant_set(name, rank.who.pid)
            klass = self.random.choice(("low", "low", "idle"))
            for rank in (p for p in self.players if p.tenant == name):
                rank.klass = klass
            self.order(lambda: self.link.sched_set(klass=klass, kind=TENANT, tenant=name))
            self.say(f"enter {name} {klass}")
            return
        front = which == "front"
        player = self.start(self.random.choice(FRONT if front else BACK), gpu)
        self.say(f"enter {player}")
        if self.random.random() < 0.3:
            self.play(self.random.uniform(0, 0.6))
        self.steer(player, self.random.choice(FRONT_CLASSES if front else BACK_CLASSES))

    def order(self, do: Callable[[], object]) -> bool:
        """false: it was refused, as the driver may."""
        try:
            do()
        except NetlinkError as error:
            self.say(f"refused: {error}")
            return False
        return True

    def steer(self, player: Player, klass: str) -> None:
        if player.tenant or not klass:
            return
        weight = self.random.choice((None, None, None, 2, 3, 5)) if klass in ("low", "idle") else None
        more = {} if weight is None else {"weight": weight}
        self.order(lambda: self.link.sched_set(player.who.pid, klass, **more))
        player.klass, player.weight = klass, weight or 1
        self.say(f"set {player}")

    def leave(self, player: Player) -> None:
        self.players.remove(player)
        player.who.end()
        if player.tenant and not any(p.tenant == player.tenant for p in self.players):
            self.order(lambda: self.link.sched_del(kind=TENANT, tenant=player.tenant))

    def happen(self) -> None:
        what, player = self.random.choice(EVENTS), self.random.choice(self.players) if self.players else None
        if what == "enter" or player is None:
            if len(self.players) < MOST:
                self.enter()
        else:
            self.say(f"{what} {player}")
            self.do(what, player)
        for each in self.players:
            each.since = self.lived

    def do(self, what: str, player: Player) -> None:
        if what == "kill":
            self.leave(player)
        elif what == "steer":
            self.steer(player, self.random.choice(("high", "normal", "low", "low", "idle")))
        elif what == "weigh" and player.klass in ("low", "idle"):
            self.steer(player, player.klass)
        elif what == "rows":
            self.rows()
        elif what == "pause":
            subject = {"kind": PID, "pid": player.who.pid}
            player.paused |= self.order(lambda: self.link.hold_set(gate=False, pause=True, lease_ms=600_000, **subject))
        elif what == "resume":
            self.resume()
        elif what == "stop":
            player.stopped = True
            os.kill(player.who.pid, signal.SIGSTOP)
        elif what == "go_on":
            for each in self.players:
                os.kill(each.who.pid, signal.SIGCONT)
                each.stopped = False
        elif what == "release" and player.klass and not player.tenant:
            self.order(lambda: self.link.sched_del(player.who.pid))
            player.klass, player.weight = "", 1
        elif what == "fail":
            self.refuse(self.random.choice((0.3, 2.0, 8.0)))
        elif what in ("slow", "quick"):
            self.slow = what == "slow"
            ms = 25 if self.slow else 0
            for command in (PAUSE, TUNE) if self.random.random() < 0.5 or not self.slow else (PAUSE,):
                WAITING.write_text(f"{command:#x} {ms} {ms}")

    def resume(self) -> None:
        for each in self.players:
            if each.paused:
                self.order(lambda each=each: self.link.hold_del(kind=PID, pid=each.who.pid))  # type: ignore[misc]
                each.paused = False

    def refuse(self, seconds: float) -> None:
        """For a while the driver refuses something."""
        command = self.random.choice((PAUSE, PAUSE, TUNE, QUESTION))
        late = self.random.random() < 0.3
        self.say(f"refuses {command:#x} for {seconds} s, late {late}")
        fail(command, status("NV_ERR_BUSY_RETRY"), late=late)
        self.quiet_until = float("inf")
        self.play(seconds)
        fail(command, 0)
        self.quiet_until = self.lived + HEALS_S

    # -- time

    def play(self, seconds: float) -> None:
        end = self.lived + seconds
        while self.lived < end:
            time.sleep(LOOK_S)
            self.judge()

    def sides(self, gpu: int) -> tuple[list[Player], list[Player]]:
        here = [p for p in self.players if p.gpu == gpu and not p.paused]
        back = [p for p in here if p.klass in ("low", "idle")]
        return back, [p for p in here if p not in back]

    def bound(self, player: Player, gpu: int) -> float:
        """Seconds within which it makes progress."""
        back, front = self.sides(gpu)
        slow = 5.0 if self.slow else 0.0
        if player not in back and player.gpu == gpu:
            return 1.0 + slow
        above = [p for p in front if p.klass]
        free = sum(p.demand for p in above) < 0.4
        many = 1.0 if len(back) < 4 else 2.0
        top = max(RANK[p.klass] for p in [*back, player])
        if RANK[player.klass] == top and free:
            return many + slow
        permille = self.floors[player.klass]
        # beside a program without a class, which is never off, a window is time on the run list, and little else
        if not permille or any(not p.klass for p in front):
            return float("inf")
        same = len([p for p in back if p.klass == player.klass])
        part = permille / 1000 / max(same, 1)
        window = min(0.01, max(0.004, 0.6 * part))
        return max(many, 1.5 * window / part + 0.05 * len(back)) + (LEARNS_S + OWES_S) * (not free) + slow

    def judge(self) -> None:
        now = time.monotonic()
        self.lived += min(now - self.looked, MOST_LOOK_S)
        self.looked = now
        got = self.times()
        for player in self.players:
            used = got.get((player.gpu, player.client), 0)
            if used != player.used or player.paused or player.stopped or self.lived < self.quiet_until:
                player.used, player.since, player.allowed = used, self.lived, 0.0
                continue
            mates = [p for p in self.players if p is player or (player.tenant and p.tenant == player.tenant)]
            bound = max(self.bound(player, each.gpu) for each in mates)
            player.allowed = max(player.allowed, bound * (1.5 if len(self.gpus) > 1 else 1))
            if self.lived - player.since > player.allowed + SLACK_S:
                self.late(player)

    def late(self, player: Player) -> None:
        waited, turns = self.lived - player.since, [row(each) for each in self.link.gpu_get()]
        key, used = (player.gpu, player.client), player.used
        kind = "late" if comes(lambda: self.times().get(key, 0) != used) else "locked up"
        self.looked, player.since = time.monotonic(), self.lived
        if kind == "late" and not ALONE:  # judged where nothing runs beside this guest
            return
        self.breaks(f"{kind}, {player}: no progress for {waited:.2f} s, allowed {player.allowed:.2f}; {turns}")

    def times(self) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for gpu in self.gpus:
            for each in tsgs(gpu):
                key = gpu, each["client"]
                found[key] = found.get(key, 0) + each["gpu_time_us"]
        return found

    # -- what is to be seen where nothing happens

    def steady(self) -> None:
        self.play(SETTLE_S)
        before = self.times()
        self.play(STEADY_S)
        after = self.times()
        if not ALONE or any(p.tenant for p in self.players):
            return
        for gpu in self.gpus:
            got = {p.who.pid: after[gpu, p.client] - before.get((gpu, p.client), 0)
                   for p in self.players if p.gpu == gpu and (gpu, p.client) in after}  # fmt: skip
            self.shares(gpu, got)

    def shares(self, gpu: int, got: dict[int, int]) -> None:
        back, front = self.sides(gpu)
        whole = max(sum(got.values()), 1)
        most = max((RANK[p.klass] for p in back), default=0)
        busy = [p for p in back if p.kind in NEVER_RESTS and not (p.stopped and p.kind == "deep")]
        never = [p for p in busy if RANK[p.klass] == most]
        had = [f"{p}: {got[p.who.pid] / whole:.4f}" for p in self.players if p.gpu == gpu and p.who.pid in got]
        self.say(f"steady gpu{gpu}: {', '.join(had)}")
        parts = [got[p.who.pid] / p.weight / whole for p in never if p.kind != "pair"]
        above = [p for p in front if p.klass]
        closed = any(p.kind in ("endless", "pair") for p in above)
        apart = 0.05 * max(parts, default=0) + 0.15 / STEADY_S + closed * 0.004
        if len(parts) > 1 and not closed and max(parts) - min(parts) > apart:
            self.breaks(f"shares {got}")
        for klass in ("low", "idle"):
            mine = [p for p in back if p.klass == klass]
            lives_off = [p for p in mine if p.kind in ("endless", "pair", "maker")]
            free = not above and RANK[klass] < most and any(p in never for p in back if p.klass == "low")
            if not mine or len(lives_off) != len(mine) or any(not p.klass for p in front) or not (closed or free):
                continue
            part, floor = sum(got[p.who.pid] for p in mine) / whole, self.floors[klass] / 1000
            if not 0.6 * floor - 0.004 <= part <= 1.3 * floor + 0.01:
                self.breaks(f"floor {floor} of {klass}: {part:.4f} {got}")

    def all_on(self) -> None:
        """Without the module."""
        for gpu in self.gpus:
            for each in tsgs(gpu):
                if each["off"] or each["slice_us"] != SLICE_US or each["level"] != 1:
                    self.breaks(f"after the end {each}")

    def live(self) -> None:
        for _ in range(self.random.randint(2, 6)):
            self.enter()
        for _ in range(self.random.randint(6, 14)):
            self.play(self.random.choice((0.05, 0.3, 1.0, 2.5)))
            self.happen()
        if self.random.random() < 0.7:
            self.resume()
        if self.slow:
            self.do("quick", self.players[0] if self.players else None)  # type: ignore[arg-type]
        self.quiet_until = max(self.quiet_until, self.lived)
        self.play(max(0.0, self.quiet_until - self.lived))
        self.steady()


@pytest.mark.parametrize("seed", SEEDS)
def test_dice(worker: Callable[..., Worker], program: Callable[..., Program], seed: int) -> None:
    with genl.DetShare() as link:
        dice = Dice(link, worker, program, seed)
        dice.live()
        if dice.random.random() < 0.5:
            for name in ("high", "normal", "low", "idle"):
                link.class_del(name)
            for each in dice.players:
                with suppress(NetlinkError):
                    link.sched_del(each.who.pid)
                with suppress(NetlinkError):
                    link.hold_del(kind=PID, pid=each.who.pid)
                with suppress(NetlinkError):
                    link.sched_del(kind=TENANT, tenant=each.tenant)
            until(lambda: not any(each["off"] for gpu in dice.gpus for each in tsgs(gpu)))
            dice.all_on()
            for name in {each.tenant for each in dice.players} - {""}:
                link.tenant_del(name)
    unload()
    try:
        dice.all_on()
    finally:
        load()
    for each in dice.players:
        os.kill(each.who.pid, signal.SIGCONT)
    assert dice.broken == []
