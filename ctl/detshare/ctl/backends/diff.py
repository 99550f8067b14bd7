# SPDX-License-Identifier: Apache-2.0
"""Events from the difference between two looks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Event, Program


def differences(before: Mapping[ProcessId, Program], now: Mapping[ProcessId, Program]) -> Iterator[Event]:
    """attach, detach and context events of programs that came, went, or made a context."""
    for process in before.keys() - now.keys():
        yield Event(time.time(), "detach", process.pid, f"ended or let go of the GPU: {before[process].command}")
    for process, program in now.items():
        earlier = before.get(process)
        if earlier is None:
            yield Event(time.time(), "attach", process.pid, program.command, {"state": program.state.value})
        known = {(t.client, t.handle, t.tsg_id) for t in earlier.compute} if earlier else set()
        if {(t.client, t.handle, t.tsg_id) for t in program.compute} - known:
            text = f"made a GPU context, {len(program.compute)} compute TSG(s)"
            yield Event(time.time(), "context", process.pid, text, {"adopted_ms": program.adopted_ms})
