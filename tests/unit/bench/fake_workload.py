# SPDX-License-Identifier: Apache-2.0
"""A workload without a GPU: speaks the protocol, behaves as its first argument says."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/detshare/tools/bench/workloads"))
from workload import Workload  # type: ignore[import-not-found]


def main() -> None:
    how = sys.argv[1]
    if how == "dies":
        sys.exit("no GPU for this test")
    if how == "deaf":  # never ready, deaf to SIGTERM
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(json.dumps({"event": "hello", "t": time.monotonic()}), flush=True)
        time.sleep(60)
    work = Workload(float(os.environ.get("SECONDS_", "0")), 0.1)
    print("a library's chatter", flush=True)
    if how == "parent":
        work.ready(programs=[11, 12])
    else:
        work.ready()
    while work.running:
        time.sleep(0.3 if how == "slow" else 0.005)
        work.done(5_000_000, items=8)
    if how == "no-summary":
        return
    work.summary()


if __name__ == "__main__":
    main()
