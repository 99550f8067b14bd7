# SPDX-License-Identifier: Apache-2.0
"""A limit of memory, and what libcuda says of it."""

from __future__ import annotations

import time

from claims.box import MIB, PID, Box, plain, rows, tell


def limit(box: Box) -> None:
    """Beyond it, below it, beyond it again, and without it: 1 and 3 are refused, 2 and 4 are not."""
    box.load()
    one = box.program("spin")
    used = sum(each.get("memory_used", 0) for each in rows(box.link.vctx_get(one.pid)))
    tell("limit", used=used, limited=plain(box.link.limit_set(used + 100 * MIB, kind=PID, pid=one.pid)))
    for mib in (256, 64, 64):
        tell("limit", mib=mib, answer=one.ask(f"alloc {mib}", "alloc"))
    tell("limit", rows=rows(box.link.limit_get()), vctx=rows(box.link.vctx_get(one.pid)))
    box.link.limit_del(kind=PID, pid=one.pid)
    tell("limit", after="taken away", answer=one.ask("alloc 256", "alloc"))
    one.end()
    time.sleep(0.5)
    tell("limit", gone=rows(box.link.vctx_get(one.pid)))
