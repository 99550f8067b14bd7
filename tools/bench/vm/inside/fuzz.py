# SPDX-License-Identifier: Apache-2.0
"""The same random ioctls without detshare.ko and with it."""

from __future__ import annotations

import argparse
import json

from detshare.tools.bench.vm.inside import guest


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: fuzz --calls 100000 --seeds 1,2")
    parser.add_argument("--calls", type=int, default=100_000, help="of each seed")
    parser.add_argument("--every", type=int, default=10_000, help="calls between two hashes")
    parser.add_argument("--seeds", default="1")
    asked = parser.parse_args()
    for seed in (int(word) for word in asked.seeds.split(",")):
        for loaded in (False, True):
            guest.load() if loaded else guest.unload()
            words = ("--seed", seed, "--calls", asked.calls, "--every", asked.every)
            process = guest.start("nvfuzz", *words)
            assert process.stdout is not None
            for line in process.stdout:
                guest.say(**{**json.loads(line), "event": "fuzz"}, seed=seed, loaded=loaded)
            if process.wait():
                raise guest.GuestError(f"nvfuzz --seed {seed} exited with {process.returncode}")
            if loaded:
                guest.say(event="left", seed=seed, **guest.settled(2.0))


if __name__ == "__main__":
    guest.main(_body)
