# SPDX-License-Identifier: Apache-2.0
"""A recording in Chrome's trace format: for chrome://tracing and Perfetto."""

from __future__ import annotations

from typing import Any

from detshare.ctl.gputime.recording import Recording


def trace(recording: Recording) -> dict[str, Any]:
    """The JSON object: a process for each GPU, a thread for each program, runs as "X" events in microseconds."""
    events: list[dict[str, Any]] = []
    for number, gpu in enumerate(recording.gpus):
        label = {"name": f"GPU {gpu.minor} {gpu.name}".rstrip()}
        events.append({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": label})
        for pid in sorted({run.pid for run in gpu.runs}):
            thread = {"name": recording.name(pid) or f"PID {pid}"}
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": pid, "args": thread})
        events += (
            {
                "ph": "X",
                "name": recording.name(run.pid) or f"PID {run.pid}",
                "cat": "run",
                "pid": number,
                "tid": run.pid,
                "ts": (run.start_ns - gpu.begin_ns) / 1e3,
                "dur": (run.end_ns - run.start_ns) / 1e3,
            }
            for run in gpu.runs
        )
    about = {"driver": recording.driver, "proof": recording.proof, "when": recording.when}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
