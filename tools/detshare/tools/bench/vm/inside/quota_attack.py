# SPDX-License-Identifier: Apache-2.0
"""nvattack against nothing, a limit without its shield, and the limit; what the simulated GPU handed out at most."""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
import time
from contextlib import suppress

from detshare.tools.bench.vm.inside import guest

TENANT = "attack"


def _attack(asked: argparse.Namespace, name: str, seconds: float, seed: int, limit: int) -> None:
    """Processes that hold all but the slack and race for more; their reports, and what was handed out at most."""
    slack = asked.slack // asked.processes
    fill = (limit - asked.slack) // asked.processes // (2 << 20) * (2 << 20)
    guest.reset_peak()
    begin = time.monotonic()
    words = ("--threads", asked.threads, "--seconds", seconds, "--fill", fill, "--slack", slack, "--told")
    processes = [
        guest.start("nvattack", *words, "--seed", seed + number, stdin=subprocess.PIPE)
        for number in range(asked.processes)
    ]
    all_hold = threading.Barrier(asked.processes)

    def read(number: int) -> None:
        stream, orders = processes[number].stdout, processes[number].stdin
        assert stream is not None
        assert orders is not None
        filled = stream.readline()
        guest.say(**{"event": "attack", **json.loads(filled or "{}")}, run=name, process=number)
        # who races before the other holds his part takes it from him: one account pays for both
        all_hold.wait()
        with suppress(BrokenPipeError), orders:
            orders.write("\n")
        for line in stream:
            # a peak that is too high shows during which way it came up
            guest.say(
                **{"event": "attack", **json.loads(line)}, run=name, process=number, peak=guest.peak(), limit=limit
            )

    readers = [threading.Thread(target=read, args=(number,)) for number in range(asked.processes)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    statuses = [process.wait() for process in processes]
    took = time.monotonic() - begin
    guest.say(event="run", run=name, limit=limit, peak=guest.peak(), used=guest.used(), seconds=took, exit=statuses)


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: quota_attack --seconds 60 --threads 8")
    parser.add_argument("--seconds", type=float, default=60.0, help="with the limit in force")
    parser.add_argument("--control-seconds", type=float, default=10.0, help="each, without it")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=int, default=64 << 20)
    parser.add_argument("--slack", type=int, default=4 << 20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()

    guest.unload()
    _attack(asked, "no module", asked.control_seconds, asked.seed, asked.limit)
    # checks a call and then trusts it: what the attack is made for
    guest.load("shield=0")
    with guest.attack_tenant(TENANT, asked.limit):
        _attack(asked, "no shield", asked.control_seconds, asked.seed + 50, asked.limit)
    guest.unload()
    guest.load()
    with guest.attack_tenant(TENANT, asked.limit) as link:
        _attack(asked, "limit", asked.seconds, asked.seed + 100, asked.limit)
        used, peak, refused = guest.account_used(link, TENANT)
        guest.say(event="account", used=used, peak=peak, refused=refused)
    guest.say(event="left", used=guest.used(), **guest.settled(2.0))


if __name__ == "__main__":
    guest.main(_body)
