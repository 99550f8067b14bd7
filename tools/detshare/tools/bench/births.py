# SPDX-License-Identifier: Apache-2.0
"""A detshared of one's own with backend root, which gives new programs a class; what its log tells of each."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["CLASS", "SLICE_US", "Daemon", "eventually", "legs", "told_of"]

CLASS: Final = "low"
SLICE_US: Final = 50
"""of that class"""
_CONFIG = """
[daemon]
backend = "root"
interval = {interval}
observers = {observers}
log_level = "debug"
[daemon.classes]
"""
_END_S: Final = 120.0


def eventually(true: Callable[[], bool], seconds: float) -> bool:
    """Whether it became true within that time."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def legs(pid: int, log: str) -> dict[str, float]:
    """The way to the class of a program that got it early: step -> ms after its first TSG was made.

    Nothing where a look came first: there was nothing left to do when it was its turn to get it early.
    """
    said = re.search(rf"PID {pid}, ms after its first TSG was made: (.*)", log)
    steps = (step.rpartition(" ") for step in said[1].split(", ")) if said else ()
    return {what: float(ms) for what, _, ms in steps}


def told_of(pid: int, log: str) -> bool:
    """Whether a log tells that a program was given its class, be it early or by a look.

    This line comes with the look after it, so who waits for it begins the next program beside a daemon at rest.
    """
    return re.search(rf"change {pid}: .* brought to", log) is not None


class Daemon:
    """Use as a context: on the way out it is ended. `commands` are patterns of who gets the class."""

    def __init__(self, folder: Path, *commands: str, observers: bool = True, interval: float = 60.0) -> None:
        config, self._log = folder / "detshare.toml", folder / "log"
        classes = "".join(f'"{command}" = "{CLASS}"\n' for command in commands)
        config.write_text(_CONFIG.format(interval=interval, observers=str(observers).lower()) + classes)
        words = [sys.executable, "-P", "-m", "detshare.ctl.daemon.detshared", "--config", str(config)]
        with self._log.open("w") as writing:
            self._process = subprocess.Popen([*words, "--run-dir", str(folder / "run")], stderr=writing)

    @property
    def text(self) -> str:
        """Its log so far."""
        return self._log.read_text(errors="replace")

    def ready(self, seconds: float) -> bool:
        """Whether it came up within that time."""
        eventually(lambda: "ready on" in self.text or self._process.poll() is not None, seconds)
        return self._process.poll() is None and "ready on" in self.text

    def tells_of(self, pid: int, seconds: float) -> bool:
        """Whether it told within that time that a program was given its class."""
        return eventually(lambda: told_of(pid, self.text), seconds)

    def legs(self, pid: int) -> dict[str, float]:
        """`legs` of its log."""
        return legs(pid, self.text)

    def end(self) -> int:
        """Its status. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
