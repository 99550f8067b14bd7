# SPDX-License-Identifier: Apache-2.0
"""The same ioctl loop with and without detshare.ko, taking turns."""

from __future__ import annotations

import argparse
import json
import subprocess

from detshare.tools.bench.vm.inside import guest


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: interception --rounds 5")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    asked = parser.parse_args()
    words = ["--batches", str(asked.batches), "--calls", str(asked.calls)]
    for number in range(asked.rounds):
        # who goes first changes: whatever drifts in the machine meets both alike
        for loaded in (False, True) if number % 2 == 0 else (True, False):
            guest.load() if loaded else guest.unload()
            done = subprocess.run([guest.client("nvloop"), *words], capture_output=True, text=True, check=False)
            if done.returncode:
                raise guest.GuestError(done.stderr.strip())
            for line in done.stdout.splitlines():
                guest.say(event="loop", round=number, loaded=loaded, **json.loads(line))


if __name__ == "__main__":
    guest.main(_body)
