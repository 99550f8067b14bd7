# SPDX-License-Identifier: Apache-2.0
"""What the programs here share: they compute, say ``result`` with a digest of all of it, and wait for SIGTERM."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workload import Workload, emit, options  # type: ignore[import-not-found]

__all__ = ["ROUNDS", "case"]

ROUNDS = int(os.environ.get("CASE_ROUNDS", "150"))
"""pieces of work, with `PAUSE` between two: long enough to be steered in the middle of it"""
PAUSE = float(os.environ.get("CASE_PAUSE_MS", "10")) / 1000


def case(pieces: Iterable[bytes], pids: Iterable[int] = ()) -> None:
    """Run to the end and digest; `ready` comes after the first piece, since a context is there then."""
    args = options(__doc__ or "").parse_args()
    work = Workload(args.seconds, 3600.0)
    sha, count = hashlib.sha256(), 0
    for piece in pieces:
        sha.update(piece)
        count += 1
        if count == 1:
            work.ready(programs=list(pids) or [os.getpid()])
        work.done(items=1)
        time.sleep(PAUSE)
    emit("result", t=round(time.monotonic(), 6), sha256=sha.hexdigest(), pieces=count)
    while work.running:
        time.sleep(0.02)
    work.summary()
