# SPDX-License-Identifier: Apache-2.0
"""Clients killed in mid-allocation, group after group: how long until nothing of them is left."""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import time
from typing import Any

from detshare.ctl.netlink.link import Link
from detshare.tools.bench.vm.inside import guest

PATIENCE = 10.0
"""seconds to wait for what should take 100 ms"""


def _wait(pids: list[int], link: Link, kill: Any) -> dict[str, float | None]:
    """Kill; then milliseconds from the last kill to: the last death, ground truth zero, ps empty, no object left."""
    files = [os.pidfd_open(pid) for pid in pids]
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    living = set(files)
    first = time.monotonic()
    kill()
    begin = time.monotonic()
    found: dict[str, float | None] = dict.fromkeys(("dead", "truth", "ps", "objects"))

    def note(name: str) -> None:
        found[name] = (time.monotonic() - begin) * 1e3

    while None in found.values() and time.monotonic() - begin < PATIENCE:
        if living:
            for file, _ in poll.poll(0 if found["dead"] is not None else 1):
                poll.unregister(file)
                living.discard(file)
            if not living:
                note("dead")
        if found["truth"] is None and not guest.used():
            note("truth")
        if found["objects"] is None and not any(guest.leaks().values()):
            note("objects")
        if found["ps"] is None and not link.vctxs():
            note("ps")
    for file in files:
        os.close(file)
    return found | {"killing": (begin - first) * 1e3}


def _group(size: int, seed: int, link: Link, chance: random.Random) -> dict[str, Any]:
    storm = guest.start("nvstorm", "--processes", size, "--seed", seed)
    assert storm.stdout is not None
    line = storm.stdout.readline()
    if not line:
        raise guest.GuestError("nvstorm ended before its clients were ready")
    pids = json.loads(line)["pids"]
    time.sleep(chance.uniform(0.0, 0.1))
    before = {
        "size": len(pids),
        "used_before": guest.used(),
        "vctxs_before": len(link.vctxs()),
        "clients_before": guest.leaks()["clients"],
    }

    def kill() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    found = _wait(pids, link, kill)
    storm.wait()
    return before | found


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: kill_storm --groups 100x1,9x100")
    parser.add_argument("--groups", default="100x1,9x100", help="TIMESxCLIENTS, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    guest.load()
    link = Link()
    seed = asked.seed
    for part in asked.groups.split(","):
        times, size = (int(word) for word in part.split("x"))
        for _ in range(times):
            seed += 1
            guest.say(event="group", **_group(size, seed, link, chance))
    guest.say(event="left", used=guest.used(), vctxs=len(link.vctxs()), **guest.settled(2.0))
    link.close()
    guest.unload()
    guest.say(event="references", nvidia=guest.references("nvidia"))


if __name__ == "__main__":
    guest.main(_body)
