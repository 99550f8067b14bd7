# SPDX-License-Identifier: Apache-2.0
"""detshare.ko in and out, over and over, while clients call the driver."""

from __future__ import annotations

import argparse
import random
import subprocess
import time

from detshare.tools.bench.vm.inside import guest

ENDLESS = 100_000_000
MOST_S = 60.0  # until a client of the mix is seen, with eight programs on two emulated CPUs
MIX = (
    ("nvloop", "--kind", "empty"),
    ("nvloop", "--kind", "client"),
    ("nvfuzz", "--seed", 3),
    ("nvloop", "--kind", "handle"),
    ("nvloop", "--kind", "client", "--xfer"),
    ("nvloop", "--kind", "version"),
    ("nvfuzz", "--seed", 4),
    ("nvloop", "--kind", "client,empty,handle"),
)
SIM_MIX = (("nvloop", "--kind", "memory"), ("nvstorm", "--processes", 1), ("nvstorm", "--processes", 1, "--seed", 9))


def _start(number: int, simulated: bool, fuzz: bool) -> subprocess.Popen[str]:
    mix = SIM_MIX + MIX if simulated else tuple(each for each in MIX if fuzz or each[0] != "nvfuzz")
    name, *words = mix[number % len(mix)]
    if name == "nvloop":
        words += ["--batches", 900_000, "--calls", 100]
    elif name == "nvfuzz":
        words += ["--calls", ENDLESS, "--every", ENDLESS]
    return guest.start(str(name), *words, stdout=subprocess.DEVNULL)


def _await_clients(seconds: float) -> dict[str, int]:
    """What the module keeps as soon as it knows a client, or when time is up.

    Most clients of the mix live for moments, and those from before the module are not known until they call again: one
    look may find none.
    """
    end = time.monotonic() + seconds
    while not (kept := guest.leaks())["clients"] and time.monotonic() < end:
        time.sleep(0.001)
    return kept


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: unload --rounds 100 --processes 8")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulated", action="store_true", help="the driver is tests/nvsim")
    parser.add_argument("--no-fuzz", action="store_true", help="no client makes random calls")
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    guest.unload()
    before = guest.references("nvidia")
    clients = [_start(number, asked.simulated, not asked.no_fuzz) for number in range(asked.processes)]
    time.sleep(1.0)
    for number in range(asked.rounds):
        begin = time.monotonic()
        guest.load()
        loaded = time.monotonic()
        # every other round it goes however little it has seen
        seen = _await_clients(MOST_S if number % 2 else 0.0)
        time.sleep(chance.uniform(0.0, 0.1))
        seen = {name: max(count, seen[name]) for name, count in guest.leaks().items()}
        leaving = time.monotonic()
        guest.unload()
        gone = time.monotonic()
        time.sleep(chance.uniform(0.0, 0.03))
        alive = sum(client.poll() is None for client in clients)
        guest.say(
            event="round",
            round=number,
            load_ms=(loaded - begin) * 1e3,
            unload_ms=(gone - leaving) * 1e3,
            alive=alive,
            loaded=guest.is_loaded(),
            **seen,
        )
    guest.load()
    time.sleep(0.5)
    held = {f"{name}_before": count for name, count in _await_clients(MOST_S).items()}
    guest.stop(*clients)
    kept = guest.settled(5.0)
    guest.unload()
    time.sleep(0.2)
    guest.say(event="after", before=before, references=guest.references("nvidia"), **held, **kept)
    guest.unload("driver")
    guest.say(event="driver gone")


if __name__ == "__main__":
    guest.main(_body)
