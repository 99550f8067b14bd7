# SPDX-License-Identifier: Apache-2.0
"""The process that makes the driver's calls.

`python -m detshare.ctl.checkpoint.child JOB LOCKFILE PID START LOCK_MS [OLD=NEW...]`, the last for JOB migrate.
A process of its own, for these calls take seconds and hold no lock of ours, libcuda stays out of the daemon, and a
daemon that is killed does not stop half-way what this began: it ends it, and the next daemon waits for it (LOCKFILE).
A move leaves a file (moved_mark): who is not checkpointed any more, and has it, is on the other GPU.
One line of JSON goes to standard output: {"state", "error", "seconds", "left"}; left: nothing was done to the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detshare.ctl.checkpoint.calls import NOT_READY, Calls, Failed, Missing, State
from detshare.ctl.core import procfs

__all__ = ["JOBS", "main", "moved_mark"]


def moved_mark(lock: str | Path, pid: int, start: int) -> Path:
    """The file that says of a process that is not checkpointed that it came back on the other GPU."""
    return Path(lock).parent / f"moved-{pid}-{start}"


def _park(calls: Calls, pid: int, lock_ms: int, _pairs: Sequence[str], _done: Path) -> State:
    state = calls.state(pid)
    if state is State.RUNNING:
        calls.lock(pid, lock_ms)
        state = State.LOCKED
    elif state is not State.CHECKPOINTED:
        raise Refused(f"the driver says that it is {state.value}, by another tool")
    if state is State.LOCKED:
        try:
            calls.checkpoint(pid)
        except Failed:
            _let_go(calls, pid)
            raise
    return calls.state(pid)


def _resume(calls: Calls, pid: int, _lock_ms: int, _pairs: Sequence[str], _done: Path) -> State:
    state = calls.state(pid)
    if state is State.CHECKPOINTED:
        calls.restore(pid)  # refused, it stays checkpointed
        state = State.LOCKED
    if state is State.LOCKED:
        calls.unlock(pid)
    return calls.state(pid)


def _migrate(calls: Calls, pid: int, lock_ms: int, pairs: Sequence[str], done: Path) -> State:
    """Whom the other GPU does not take comes back to its own, or stays checkpointed if it was."""
    mapping, before = calls.mapping(pairs), calls.state(pid)
    state = _park(calls, pid, lock_ms, (), done)
    if state is State.CHECKPOINTED:
        with contextlib.suppress(OSError):  # who finds it without this one follows it to no other GPU
            done.touch()  # before: who is killed in between leaves it checkpointed, and that counts
        try:
            calls.restore(pid, mapping)
        except Failed:
            done.unlink(missing_ok=True)
            if before is not State.CHECKPOINTED:
                _resume(calls, pid, lock_ms, (), done)
            raise
        calls.unlock(pid)
    return calls.state(pid)


def _settle(calls: Calls, pid: int, _lock_ms: int, _pairs: Sequence[str], _done: Path) -> State:
    """Who was locked by us and not checkpointed goes on."""
    _let_go(calls, pid)
    return calls.state(pid)


def _state(calls: Calls, pid: int, _lock_ms: int, _pairs: Sequence[str], _done: Path) -> State:
    return calls.state(pid)


def _let_go(calls: Calls, pid: int) -> None:
    if calls.state(pid) is State.LOCKED:
        calls.unlock(pid)


JOBS = {"park": _park, "resume": _resume, "migrate": _migrate, "settle": _settle, "state": _state}


class Refused(Exception):
    """It is in no state for that, and left alone."""


def _do(job: str, pid: int, start: int, lock_ms: int, pairs: Sequence[str], done: Path) -> dict[str, Any]:
    pidfd = os.pidfd_open(pid)  # from here on the number is no other process's
    try:
        if procfs.start_time(pid) != start:
            raise ProcessLookupError
        calls = Calls()
        began = time.monotonic()
        try:
            return {
                "state": JOBS[job](calls, pid, lock_ms, pairs, done),
                "error": "",
                "seconds": time.monotonic() - began,
            }
        except Refused as error:
            return {"state": "", "error": str(error), "seconds": 0.0, "left": True}
        except Failed as error:
            text = str(error)
            if error.status == NOT_READY:
                text = f"its work did not end within {lock_ms / 1000:g} s; next: a longer --timeout, or end its kernel"
            return {"state": calls.state(pid), "error": text, "seconds": time.monotonic() - began}
    finally:
        os.close(pidfd)


def main(words: list[str]) -> dict[str, Any]:
    """What is said of one job."""
    job, lock, pid, start, lock_ms, *pairs = words
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # a restore fails with it
    try:
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # one at a time: they share the bus, and two daemons the programs
            return _do(job, int(pid), int(start), int(lock_ms), pairs, moved_mark(lock, int(pid), int(start)))
    except ProcessLookupError:
        return {"state": State.NONE, "error": "it has ended", "seconds": 0.0}
    except Missing as error:
        return {"state": "", "error": str(error), "seconds": 0.0, "left": True}
    except Exception as error:  # noqa: BLE001  told to the daemon, whatever it is
        return {"state": "", "error": f"{type(error).__name__}: {error}", "seconds": 0.0}


if __name__ == "__main__":
    said = json.dumps(main(sys.argv[1:]))
    try:
        print(said, flush=True)
    except BrokenPipeError:  # the daemon was killed meanwhile; the next one asks for the state
        os._exit(0)
