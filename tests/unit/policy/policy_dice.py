# SPDX-License-Identifier: Apache-2.0
"""Seeded dice over the policies on two GPUs: programs come and go, people decide, verbs fail, daemons are killed.

One seed is one life. By hand, from the repository's root, as many as wanted:
`PYTHONPATH=.:tests/unit/policy python tests/unit/policy/policy_dice.py FIRST LAST`.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

from policy_world import GPU, World, program

from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.observed import Grid, Observed, Requests
from detshare.ctl.core.snapshot import Program, State
from detshare.ctl.core.snapshot import Snapshot as Look
from detshare.ctl.policy import registry
from tests.seeds import by_hand

GPUS = (GPU, "GPU-00000001-1111-2222-3333-444444444444")
KLASSES = ("high", "normal", "low", "idle")
EVENTS = ("born", "born", "ends", "reused", "busy", "busy", "busy", "hand", "hand", "hand", "policy", "policy",
          "deadline", "give_back", "again", "refuse", "works", "jump", "rest", "many")  # fmt: skip
REFUSED = ("set-slice", "pause", "resume", "release", "preempt", "set-class")


class Dice(World):
    """One life. `broken` says in words what was not kept."""

    def __init__(self, run_dir: Path, seed: int, *, tell: bool = False) -> None:
        super().__init__(run_dir, limit_s=5.0)
        self.random, self.tell, self.number = random.Random(seed), tell, 0
        self.broken: list[str] = []
        self.rates: dict[int, dict[str, float]] = {}
        self.by_hand: dict[int, set[str]] = {}
        self.engine.open_with("static", {})

    def say(self, text: str) -> None:
        if self.tell:
            print(f"{self.now:10.3f} {text}")

    def born(self, pid: int | None = None) -> None:
        self.number += 1
        pid = pid or 100 + self.number
        made = program(pid, f"train {self.number}")
        gpus = self.random.choice((GPUS[:1], GPUS[1:], GPUS, GPUS[::-1]))
        tsgs = tuple(replace(made.tsgs[0], gpu=gpu, handle=n + 1) for n, gpu in enumerate(gpus))
        group = self.random.choice(("", "", "c0ffee", "abcdef"))
        self.programs[pid] = replace(made, id=ProcessId(pid, self.number), tsgs=tsgs, gpus=gpus, container=group)
        self.rates[pid] = dict.fromkeys(gpus, 0.0)
        self.by_hand[pid] = set()

    def ends(self, pid: int) -> None:
        for table in (self.programs, self.rates, self.by_hand):
            del table[pid]  # type: ignore[attr-defined]

    def lively(self, each: Program, number: int) -> Program:
        rates = self.rates[each.id.pid]
        shut = each.state is not State.RUNNING
        times = tuple(GpuTime(g, 5.0, *[0.0 if shut else r] * 2, 4.0, 10_000.0, 0.0, ()) for g, r in rates.items())
        observed = requests = None
        if each.id.pid % 3 == 0:
            graphs = number // 3 * (each.id.pid % 2)
            observed = Observed(number, graphs, launches_per_s=9.0, blocks=1000, grids=(Grid(1000, 128, 5),))
        if each.id.pid % 4 == 0:
            p99 = self.random.choice((0.001, 0.02, 0.5))
            requests = Requests(self.random.randint(1, 500), 4.0, p99 / 2, p99, 0.1, number)
        return replace(each, gpu_time=times, gpu_share=sum(rates.values()), observed=observed, requests=requests)

    def look(self, after: float = 0.0) -> None:
        self.now += after
        gpus = tuple(Gpu(uuid, n, "Fake", f"0000:0{n}:00.0", 80 << 30) for n, uuid in enumerate(GPUS))
        seen = [self.lively(each, int(100 * self.now)) for each in self.programs.values()]
        self.engine.look(Look("model", "unit", "580.0", self.now, 0.001, gpus, tuple(seen)))
        self.turn()

    def play(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.look(0.25)
            for _ in range(self.random.choice((0, 3))):
                self.turn(0.01)
            self.judge()

    def judge(self) -> None:
        for event in self.told:
            if event.kind == "error":
                self.broken.append(f"{self.now:.2f} {event.text}")
        self.told.clear()

    def hand(self, pid: int) -> None:
        verb = self.random.choice(("set-priority", "set-slice", "pause", "resume", "release"))
        args: dict[str, object] = {}
        if verb == "set-priority":
            args = {"class": self.random.choice(KLASSES)}
        elif verb == "set-slice":
            args = {"slice_us": 777, "level": "medium"}
        self.say(f"{verb} {pid}")
        outcome = self.do(verb, str(pid), **args)
        self.engine.hand(verb, str(pid), outcome)
        if verb == "release":
            self.by_hand[pid].clear()
            self.programs[pid] = replace(self.programs[pid], state=State.RUNNING)
        else:
            self.by_hand[pid].add(verb)

    def happen(self) -> None:
        what = self.random.choice(EVENTS)
        if what == "born" or not self.programs:
            if len(self.programs) < 12:
                self.born()
            return
        pid = self.random.choice(list(self.programs))
        self.say(f"{what} {pid}")
        if what in ("ends", "reused"):
            self.ends(pid)
            if what == "reused":
                self.born(pid)
        elif what in ("busy", "rest"):
            for gpu in self.rates[pid]:
                self.rates[pid][gpu] = 0.0 if what == "rest" else self.random.choice((0.0, 0.3, 1.0))
        elif what == "hand":
            self.hand(pid)
        elif what == "policy":
            name = self.random.choice([*registry.SHIPPED])
            self.say(name)
            self.choose(name)
        elif what == "deadline":
            self.engine.set_deadline({pid}, self.random.choice((None, 500.0, 20_000.0)))
        elif what == "give_back":
            self.engine.give_back({pid})
        elif what == "again":
            self.again()
            self.engine.open_with("static", {})
        elif what == "refuse":
            self.refuse = {} if self.refuse else {self.random.choice(REFUSED): "the driver says no"}
        elif what == "works":
            for _ in range(self.random.choice((1, 500))):
                self.engine.edge(pid, self.random.random() < 0.5)
        elif what == "jump":
            self.now += self.random.choice((100.0, 86_400.0))
        elif what == "many":
            for _ in range(100):
                self.born()
            self.look(0.25)
            for each in list(self.programs)[5:]:
                self.ends(each)

    def live(self) -> list[str]:
        for _ in range(self.random.randint(10, 40)):
            self.happen()
            self.play(self.random.choice((0.0, 0.3, 2.0, 15.0)))
        self.refuse = {}
        self.play(1.0)
        self.choose("static")
        self.play(12.0)
        if self.engine.ledger.puts or self.engine.ledger.rows:
            self.broken.append(f"still stands: {self.engine.ledger.puts} {self.engine.ledger.rows}")
        for pid, each in self.programs.items():
            if not self.by_hand[pid]:
                if each.state is not State.RUNNING:
                    self.broken.append(f"{pid} is {each.state}")
                if any(tsg.slice_us != 2048 for tsg in each.tsgs):
                    self.broken.append(f"{pid} has {[t.slice_us for t in each.tsgs]}")
        alive = {each.id for each in self.programs.values()}
        for name in ("hand", "deadlines"):
            if gone := set(getattr(self.engine.ledger, name)) - alive:
                self.broken.append(f"{name} of {gone}")
        self.close()
        return self.broken


def live(seed: int, *, tell: bool = False) -> list[str]:
    """What one life did not keep."""
    with tempfile.TemporaryDirectory() as folder:
        return Dice(Path(folder) / "run", seed, tell=tell).live()


if __name__ == "__main__":
    by_hand(live)
