# SPDX-License-Identifier: Apache-2.0
"""The same random ioctls without detshare.ko and with it; and, where the answers differ, the first call whose do."""

from __future__ import annotations

import argparse
import json

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.inside import guest


def _nvfuzz(words: tuple[object, ...], told: Line | None) -> list[Line]:
    """What it says; passed on to the host as it comes, with `told`, where that is given."""
    process = guest.start("nvfuzz", *words)
    assert process.stdout is not None
    lines: list[Line] = []
    for text in process.stdout:
        lines.append(json.loads(text))
        if told is not None:
            guest.say(**lines[-1] | {"event": "fuzz"} | told)
    if process.wait():
        raise guest.GuestError(f"nvfuzz {' '.join(map(str, words))} exited with {process.returncode}")
    return lines


def _both(*words: object, told: Line | None = None) -> tuple[list[Line], list[Line]]:
    """What one sequence of calls gives without the module, and with it; the module is in afterwards."""
    guest.unload()
    without = _nvfuzz(words, told and told | {"loaded": False})
    guest.load()
    return without, _nvfuzz(words, told and told | {"loaded": True})


def _first_difference(seed: int, without: list[Line], loaded: list[Line]) -> Line | None:
    """The calls between the last hash that is the same and the first that is not, once more, one by one.

    None: no hash differs.
    """
    ends = [line["calls"] for line, other in zip(without, loaded, strict=True) if line["hash"] != other["hash"]]
    if not ends:
        return None
    begin = max((line["calls"] for line in without if line["calls"] < ends[0]), default=0)
    words = ("--seed", seed, "--calls", ends[0], "--every", ends[0], "--trace", f"{begin}:{ends[0]}")
    for one, other in zip(*_both(*words), strict=False):
        if one != other and "call" in one:
            return {"seed": seed, "without": one, "loaded": other}
    return {"seed": seed, "without": None, "loaded": None}  # the same answers the second time


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: fuzz --calls 100000 --seeds 1,2")
    parser.add_argument("--calls", type=int, default=100_000, help="of each seed")
    parser.add_argument("--every", type=int, default=10_000, help="calls between two hashes")
    parser.add_argument("--seeds", default="1")
    asked = parser.parse_args()
    for seed in (int(word) for word in asked.seeds.split(",")):
        words = ("--seed", seed, "--calls", asked.calls, "--every", asked.every)
        without, loaded = _both(*words, told={"seed": seed})
        guest.say(event="left", seed=seed, **guest.settled(2.0))
        if first := _first_difference(seed, without, loaded):
            guest.say(event="differs", **first)


if __name__ == "__main__":
    guest.main(_body)
