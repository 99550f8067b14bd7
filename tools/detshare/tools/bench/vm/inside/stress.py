# SPDX-License-Identifier: Apache-2.0
"""Everything at once, in an order that a seed decides; then everything is taken back, and nothing may be left."""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path

from detshare.tools.bench.vm.inside import guest
from detshare.tools.bench.vm.inside.stress_clients import Crowd, waiting_long
from detshare.tools.bench.vm.inside.stress_steps import STEPS, WORKERS, World, release_all

GAP = 0.05
"""seconds between two steps, on average"""
TRIES = 60
REST = 0.5
TOLD = 10.0
"""seconds between two lines of progress"""
_LOCKDEP = Path("/proc/lockdep_stats")


def _go(world: World, seconds: float) -> None:
    steps = [step for step in STEPS if world.knows(*step.needs)]
    for _ in range(WORKERS):
        world.crowd.bear(worker=True)
    world.start_daemon()
    end = time.monotonic() + seconds
    told = 0.0
    while (now := time.monotonic()) < end:
        world.crowd.look()
        (step,) = world.chance.choices(steps, [step.share for step in steps])
        step.run(world)
        if now - told > TOLD:
            told = now
            guest.say(
                event="progress", left=round(end - now), clients=len(world.crowd.clients), done=sum(world.done.values())
            )
        time.sleep(world.chance.expovariate(1 / GAP))
    # a short run may not have come to the rare ones by chance, or to nothing that they could change
    for step in steps:
        for _ in range(TRIES):
            if world.done[step.name]:
                break
            step.run(world)
            if not world.done[step.name]:
                time.sleep(REST)  # on a slow kernel nobody may have a channel yet


def _finish(world: World) -> None:
    release_all(world)
    crowd = world.crowd
    crowd.end(*[client for client in crowd.clients if client.worker])
    crowd.kill(*crowd.clients)
    world.kill_daemon()
    waits = waiting_long(5.0)
    guest.say(
        event="steps",
        done=dict(world.done),
        never=[step.name for step in STEPS if world.knows(*step.needs) and not world.done[step.name]],
        refused=dict(world.refused),
        slowest={name: round(took, 3) for name, took in world.slowest.items()},
        killed=crowd.killed,
        stuck=waits,
    )
    guest.say(event="left", used=guest.used(), **guest.settled(20.0, every=True))
    world.drop()
    guest.unload()
    guest.say(event="references", nvidia=guest.references("nvidia"))
    guest.say(event="checks", lockdep=_lockdep(), leaks=_leaks())


def _lockdep() -> bool | None:
    """Whether lockdep still watches; None on a kernel without it."""
    if not _LOCKDEP.exists():
        return None
    lines = dict(line.split(":", 1) for line in _LOCKDEP.read_text().splitlines() if ":" in line)
    return lines[" debug_locks"].strip() == "1"


def _leaks() -> str | None:
    """What kmemleak tells, "" for nothing; None on a kernel without it."""
    done = subprocess.run(["vm-leaks"], capture_output=True, text=True, check=False)
    return None if done.returncode == 2 else done.stdout


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: stress --seconds 120 --seed 7")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    guest.load()
    with tempfile.TemporaryDirectory(prefix="stress-") as name:
        world = World(chance, Crowd(random.Random(chance.random()), Path(name)), Path(name))
        guest.say(event="seed", seed=asked.seed)
        _go(world, asked.seconds)
        _finish(world)


if __name__ == "__main__":
    guest.main(_body)
