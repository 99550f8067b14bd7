# SPDX-License-Identifier: Apache-2.0
"""Seeded dice over turns on the model: programs come, change, stop and go, and the driver is slow or refuses.

One seed is one life of a daemon. By hand, from the repository's root, as many as wanted:
`PYTHONPATH=.:tests/unit/turns python tests/unit/turns/dice.py FIRST LAST`.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import pytest
from people import FLOOR, FRONT, NEVER_REST, RANK, WORK, Halting, Player, Rank, Ranks
from turns_stage import Stage

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import Call, ModelSwitchLog
from detshare.ctl.backends.model.gpu import DEFAULT_SLICE_US, GpuModel
from detshare.ctl.core.driver import Gpu, NotAllowed
from tests.seeds import by_hand
from tests.unit.model import programs

LOOK_S = 0.25
STEADY_S = 6.0
SLACK_S = 0.25
"""the daemon's look, and the tick at which this is judged"""
LEARNS_S = 1.2
"""until the pattern of a foreground is known, beside one that has half of the time or more"""
SWITCH, TUNE, IDLE = (
    "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS",
    "NVA06C_CTRL_CMD_SET_TIMESLICE",
    "NV2080_CTRL_CMD_FIFO_IDLE_CHANNELS",
)
EVENTS = ("enter", "enter", "kill", "steer", "steer", "weigh", "pause", "resume", "stop", "go_on", "context", "release",
          "fail", "slow", "quick", "kill_in_a_call", "lose")  # fmt: skip


class Dice(Stage):
    """One life of a daemon. `broken` says in words what was not kept."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, tell: bool = False) -> None:
        self.random = random.Random(seed)
        super().__init__(run_dir, monkeypatch, gpus=1 if self.random.random() < 0.7 else 2)
        self.seed, self.tell, self.number = seed, tell, 0
        self.players: list[Player] = []
        self.broken: list[str] = []
        self.looked = self.refuses_until = 0.0
        self.driver.sleep = self.driver.machine.advance
        monkeypatch.setattr(time, "thread_time", lambda: 0.0)  # a system call each, and of no use here
        self.blind = self.random.random() < 0.1
        if self.blind:
            monkeypatch.setattr(self.driver, "switch_log", self._refuse)

    @staticmethod
    def _refuse(gpu: Gpu) -> ModelSwitchLog:
        raise NotAllowed(f"no log of GPU {gpu.minor}")

    @property
    def now(self) -> float:
        return self.gpu.timeline.now / 1e9

    def say(self, text: str) -> None:
        if self.tell:
            print(f"{self.now:8.3f} {text}")

    def breaks(self, text: str) -> None:
        self.broken.append(f"{self.now:.3f} {text}; all: {'; '.join(map(str, self.players))}")
        self.say(self.broken[-1])

    # -- what happens

    def enter(self) -> None:
        self.number += 1
        seed, gpus = 100 * self.seed + self.number, self.driver.gpu_models
        gpu = self.random.choice(gpus)
        index = gpus.index(gpu)
        which = self.random.choice(["back"] * 4 + ["front", "job", "mps"])
        if which == "job" and len(gpus) == 2:
            job, tenant, klass = Ranks(seed), f"job-{self.number}", self.random.choice(("low", "low", "normal", "idle"))
            if self.random.random() < 0.5:
                process = programs.multi_gpu(self.driver)
                self._join(Player(process, [(each, Rank(job)) for each in gpus], "job", klass, tenant=tenant))
                return
            for n, each in enumerate(gpus):
                process = scenario.cuda_process(self.driver, f"rank {n}", gpu=n)
                self._join(Player(process, [(each, Rank(job))], "rank", klass, tenant=tenant))
        elif which == "mps" and self.players and not any(p.mps for p in self.players):
            server, kind = programs.mps_server(self.driver, gpu=index), self.random.choice(("busy", "ten"))
            programs.mps_client(self.driver, server, gpu=index)
            self._join(Player(server, [(gpu, Halting(WORK[kind](seed)))], f"mps {kind}", "low", mps=True))
        elif which == "front":
            process, kind = scenario.cuda_process(self.driver, "front", gpu=index), self.random.choice(sorted(FRONT))
            make, request_us, demand = FRONT[kind]
            klass = self.random.choice(("high", "high", "normal", ""))
            work = Halting(make(seed))
            self._join(Player(process, [(gpu, work)], kind, klass, request_us=request_us, demand=demand))
        else:
            process, kind = scenario.cuda_process(self.driver, "back", gpu=index), self.random.choice(sorted(WORK))
            tenant = self.random.choice(("", "", "", "", "red", "blue"))
            klass = self.random.choice(("low", "low", "low", "low", "idle", "normal", ""))
            self._join(Player(process, [(gpu, Halting(WORK[kind](seed)))], kind, klass, tenant=tenant))

    def _join(self, player: Player) -> None:
        for gpu, work in player.work:
            self.driver.machine.start_work(player.process, gpu, work)
        self.players.append(player)
        if self.random.random() < 0.3:
            self.play(self.random.uniform(0, 0.6))
        if player in self.players and player.klass:
            self._set(player, player.klass)

    def _set(self, player: Player, klass: str) -> None:
        high = klass == "high"
        weight = None if high else self.random.choice((None, None, None, 2, 3, 10))
        floor = None if high else self.random.choice((None, None, None, None, 0.0, 0.05, 0.2))
        player.klass, player.weight, player.floor = klass, weight or 1, FLOOR[klass] if floor is None else floor
        self.backend.set_priority(player.who, klass, weight, floor, player.tenant)
        player.moved.clear()
        self.say(f"set {player}")

    def leave(self, player: Player) -> None:
        self.players.remove(player)
        self.driver.machine.kill(player.process)

    def happen(self) -> None:
        """One event."""
        what, player = self.random.choice(EVENTS), self.random.choice(self.players) if self.players else None
        if what == "enter" or player is None:
            if len(self.players) < 9:
                self.enter()
        elif not (player.mps and what in ("pause", "context", "kill", "kill_in_a_call", "weigh")):
            self.say(f"{what} {player}")
            self._do(what, player)

    def _do(self, what: str, player: Player) -> None:
        if what == "kill":
            self.leave(player)
        elif what == "steer" and not player.tenant.startswith("job"):
            self._set(player, self.random.choice(("high", "normal", "low", "low", "idle")))
        elif what == "weigh" and not player.tenant:
            player.klass, player.weight, player.floor = "weight", self.random.choice((1, 2, 3)), FLOOR["weight"]
            self.backend.set_weight(player.who, player.weight)
        elif what == "pause":
            player.paused = not self.backend.pause(player.who).skipped
        elif what == "resume":
            for each in (p for p in self.players if p.paused):
                each.paused = bool(self.backend.resume(each.who).skipped)
        elif what in ("stop", "go_on"):
            for work in (w for p in self.players for _, w in p.work if isinstance(w, Halting)):
                if what == "go_on" and work.stopped:
                    work.go_on(self.gpu.timeline.now)
                work.stopped = work.stopped or (what == "stop" and any(work is w for _, w in player.work))
        elif what == "context" and len(player.work) == 1:
            self._context(player)
        elif what == "release" and not self.backend.release(player.who).skipped:
            player.klass = ""
        elif what == "fail":
            self._fail(self.random.choice((0.05, 0.3, 2.0)))
        elif what in ("slow", "quick"):
            tune = self.random.choice((0.0, 0.05))
            self.driver.latency = {SWITCH: 0.05, TUNE: tune} if what == "slow" else {}
        elif what == "kill_in_a_call":
            self._kill_in_a_call(player)
        elif what == "lose":  # records that nobody read in time
            for source in self.turns.sensor._sources.values():
                if isinstance(source.log, ModelSwitchLog):
                    source.log.dropped += len(source.log.read())
        for each in self.players:
            each.moved.clear()

    def _context(self, player: Player) -> None:
        """It makes another context, and works in that from now on."""
        gpu, work = player.work[0]
        before = set(map(id, gpu.tsgs))
        scenario.make_context(self.driver, player.process, gpu=self.driver.gpu_models.index(gpu))
        tsg = next(t for t in gpu.tsgs if id(t) not in before and t.runlist == 0)
        gpu.timeline.move(work, tsg)

    def _fail(self, seconds: float) -> None:
        """For a while the driver refuses something."""
        self.driver.inject = {self.random.choice((SWITCH, TUNE, IDLE)): self.driver.abi.status("NV_ERR_BUSY_RETRY")}
        self.refuses_until = float("inf")
        self.play(seconds)
        self.driver.inject, self.refuses_until = {}, self.now + 1.5

    def _kill_in_a_call(self, player: Player) -> None:
        left = self.random.randint(1, 20)

        def strike(call: Call) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                self.driver.before_control = None
                if player in self.players:
                    self.leave(player)

        self.driver.before_control = strike

    # -- time

    def play(self, seconds: float) -> None:
        """Goes on as daemon and thread do, with their pauses."""
        end = self.now + seconds
        while self.now < end:
            if self.now - self.looked >= LOOK_S:
                if self.backend.stirs():
                    self.backend.look()
                self.looked = self.now
            begun = self.now
            pause = self.turns._turn() if self.turns._members else 0.05
            if (took := self.now - begun) > 0.01:
                pause = max(pause, took)
            self.judge()
            self.driver.machine.advance(min(pause, max(0.0003, end - self.now)))

    def sides(self, gpu: GpuModel) -> tuple[list[Player], list[Player]]:
        """Background and foreground."""
        here = [p for p in self.players if p.on(gpu) and not p.paused]
        top = max((RANK[p.klass] for p in here if p.klass), default=0)
        back = [p for p in here if p.klass and RANK[p.klass] < max(top, 3)]
        return back, [p for p in here if p not in back]

    def mates(self, player: Player) -> list[Player]:
        """The programs of its tenant, which has its turns on all of its GPUs at once."""
        return [p for p in self.players if p is player or (p.tenant and p.tenant == player.tenant and not p.paused)]

    def at(self, player: Player, gpu: GpuModel) -> bool:
        return any(p.on(gpu) for p in self.mates(player))

    def rank(self, player: Player) -> int:
        """A tenant has the highest rank that one of its programs has."""
        return max(RANK[p.klass] for p in self.mates(player) if p.klass)

    def bound(self, player: Player, gpu: GpuModel) -> float:
        """Seconds within which it makes progress."""
        back, front = self.sides(gpu)
        slow = 5.0 if self.driver.latency else 0.0
        if player.paused:
            return float("inf")
        if not player.klass and not player.on(gpu):
            return 0.0
        if player not in back and player.on(gpu):
            return 1.0 + slow
        ranks = {p.who: self.rank(p) for p in {p.who: p for p in (*back, player)}.values()}
        rank = ranks[player.who]
        free = sum(p.demand for p in front) < 0.4
        many = 1.0 if len(back) < 4 else 2.0
        if rank == max(ranks.values()) and free:
            bound = many
        elif self.blind:
            return float("inf")
        else:
            same = [p for p in (*back, player) if ranks[p.who] == rank]
            floor = max(p.floor for p in same)
            if not floor:
                return float("inf")
            window = min(0.01, max(0.004, 0.6 * floor / len(same)))
            bound = max(many, 1.5 * len(same) * window / floor + 0.3 * len(back)) + (0 if free else LEARNS_S)
        return (bound if len(self.driver.gpu_models) == 1 else 1.5 * bound) + slow

    def judge(self) -> None:
        for player in self.players:
            for n, (_, work) in enumerate(player.work):
                since, busy = player.moved.get(n, (self.now, -1))
                if not work.queue or work.busy != busy or self.now < self.refuses_until:
                    player.moved[n], player.allowed[n] = (self.now, work.busy), 0.0
                    continue
                allowed = max(self.bound(player, each) for each in self.driver.gpu_models if self.at(player, each))
                player.allowed[n] = max(player.allowed[n], allowed)
                if self.now - since > player.allowed[n] + SLACK_S:
                    self.breaks(f"{player}: no progress for {self.now - since:.2f} s, allowed {player.allowed[n]:.2f}")
                    player.moved[n] = (self.now, work.busy)

    # -- what is to be seen where nothing happens

    def steady(self) -> None:
        self.play(2.5)
        before = {(p.who, n): work.busy for p in self.players for n, (_, work) in enumerate(p.work)}
        for _, work in (each for p in self.players for each in p.work):
            work.finished.clear()
        begin = self.gpu.timeline.now
        self.play(STEADY_S)
        spent = self.gpu.timeline.now - begin
        alone = not any(p.mps or p.tenant for p in self.players)
        for gpu in self.driver.gpu_models if alone else ():
            got = {p.who: (w.busy - before[p.who, n]) / spent for p in self.players
                   for n, (g, w) in enumerate(p.work) if g is gpu and (p.who, n) in before}  # fmt: skip
            self._shares(gpu, got)

    def _shares(self, gpu: GpuModel, got: dict[str, float]) -> None:
        back, front = self.sides(gpu)
        most = max((RANK[p.klass] for p in back), default=0)
        never = [p for p in back if RANK[p.klass] == most and p.kind in NEVER_REST and not p.stopped]
        parts = [got[p.who] / p.weight for p in never]
        # of the shares as such, and of what a turn more or less within the interval makes
        apart = 0.05 * max(parts, default=0.0) + 0.3 / STEADY_S / min((p.weight for p in never), default=1)
        if parts and len({p.floor for p in never}) == 1 and max(parts) - min(parts) > apart:
            self.breaks(f"shares {got}")
        for player in never if self.blind is False else ():
            floor = min(p.floor for p in back if RANK[p.klass] == most)
            if sum(got[p.who] for p in back if RANK[p.klass] == most) < min(0.7 * floor, floor - 0.006):
                self.breaks(f"floor of {player}: {got}")
        if len(front) == 1 and front[0].klass == "high" and front[0].request_us and not front[0].stopped:
            times = sorted(us / 1000 for _, us in front[0].work[0][1].finished)
            limit = 1.02 * front[0].request_us + 600
            if len(times) > 20 and times[len(times) * 99 // 100] > limit and front[0].kind != "tight":
                self.breaks(f"p99 {times[len(times) * 99 // 100]:.0f} us of {limit:.0f}")

    def all_on(self) -> None:
        """After the end: everybody runs, and has the slice that it was found with."""
        for tsg in (t for gpu in self.driver.gpu_models for t in gpu.tsgs):
            if not all(channel.enabled for channel in tsg.channels):
                self.breaks(f"{tsg.pid} is off")
            if tsg.runlist == 0 and tsg.slice_us != DEFAULT_SLICE_US["compute"]:
                self.breaks(f"{tsg.pid} has a slice of {tsg.slice_us} us")

    def live(self) -> list[str]:
        for _ in range(self.random.randint(1, 4)):
            self.enter()
        for _ in range(self.random.randint(3, 8)):
            self.play(self.random.choice((0.1, 0.5, 1.5, 3.0)))
            self.happen()
        if self.random.random() < 0.7:
            self.driver.latency, self.driver.before_control = {}, None
            self.steady()
        self.driver.before_control = None
        self.backend.close()
        self.all_on()
        return self.broken


def live(seed: int, *, tell: bool = False) -> list[str]:
    """What one daemon's life did not keep."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        return Dice(Path(folder), patch, seed, tell=tell).live()


if __name__ == "__main__":
    by_hand(live)
