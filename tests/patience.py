# SPDX-License-Identifier: Apache-2.0
"""How tests wait, on any machine: as long as they, and what they started, make progress."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self, TypeVar

from detshare.ctl.core.patience import Patience

T = TypeVar("T")
LONG_S = 600.0
"""for calls that can only be given a time, such as a socket's: it ends what hangs, on the slowest machine too"""
IDLE_S = 60.0 if Path("/proc/self/schedstat").exists() else LONG_S
"""seconds in which nothing is done at all: what is waited for does not come. The debug kernel has no schedstat, so does
not say what is done: there it is a time"""


def comes(true: Callable[[], T], idle_s: float = IDLE_S, pause: float = 0.002) -> T:
    """What `true` answers once that counts as true, else its last answer."""
    patience = Patience(idle_s)
    while not (answer := true()) and not patience.spent():
        time.sleep(pause)
    return answer


def until(true: Callable[[], T], idle_s: float = IDLE_S, pause: float = 0.002, said: Callable[[], object] = str) -> T:
    """What `true` answers once that counts as true. AssertionError, with what `said` has to say, where it hangs."""
    patience = Patience(idle_s)
    while not (answer := true()):
        if why := patience.spent():
            raise AssertionError(f"did not come true: what was waited for {why} {said()}".rstrip())
        time.sleep(pause)
    return answer


def ended(process: subprocess.Popen[Any], idle_s: float = IDLE_S) -> int:
    """Its exit code, once it has one. It must not be kept from its end by a full pipe."""
    until(lambda: process.poll() is not None, idle_s, said=lambda: process.args)
    return int(process.returncode)


def words(process: subprocess.Popen[Any], idle_s: float = IDLE_S) -> tuple[Any, Any]:
    """What `communicate` gives; the process has ended. Killed, and AssertionError, where it hangs."""
    patience = Patience(idle_s)
    while True:
        try:
            return process.communicate(timeout=0.25)
        except subprocess.TimeoutExpired:
            if why := patience.spent():
                process.kill()
                process.wait()
                raise AssertionError(f"{process.args} {why}") from None


def run(command: Sequence[Any], *, idle_s: float = IDLE_S, **named: Any) -> subprocess.CompletedProcess[Any]:
    """subprocess.run for a command that ends by itself: without a time-out, but for one that hangs."""
    check = named.pop("check", False)
    if named.pop("capture_output", False):
        named["stdout"] = named["stderr"] = subprocess.PIPE
    given = named.pop("input", None)
    with ExitStack() as kept:
        if given is not None:
            # by a file: of a pipe, communicate() writes no more once it was interrupted
            named["stdin"] = kept.enter_context(TemporaryFile("w+" if isinstance(given, str) else "w+b"))
            named["stdin"].write(given)
            named["stdin"].seek(0)
        process = kept.enter_context(subprocess.Popen(command, **named))
        patience = Patience(idle_s)
        while True:
            try:
                out, err = process.communicate(timeout=0.25)
                break
            except subprocess.TimeoutExpired:
                if why := patience.spent():
                    process.kill()
                    raise AssertionError(f"{command} {why}") from None
            except BaseException:
                process.kill()
                raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class Slept:
    """`seconds` in which neither this process nor one below it did anything while the block ran.

    For what must not wait for something: what it took a slow or busy machine to do the rest does not count.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._patience = Patience(float("inf"), busy_s=float("inf"))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, name="slept", daemon=True)

    def _count(self) -> None:
        while not self._ended.wait(0.25):
            self._patience.spent()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._patience.spent()
        self.seconds = self._patience.idle
