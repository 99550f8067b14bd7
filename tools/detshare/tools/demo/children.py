# SPDX-License-Identifier: Apache-2.0
"""Programs that the demo starts: read line by line, and ended on every way out."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import Any, Self

from detshare.ctl.core.patience import Patience
from detshare.tools.demo.errors import DemoError
from detshare.tools.demo.figures import Figures, percentile

_END_SECONDS = 10.0


def alone_in_session(command: Sequence[str]) -> list[str]:
    """`command` so that it gets SIGTERM if the demo is killed outright; as it is where setpriv is missing."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", *command] if setpriv else list(command)


class Child:
    """A running program with its last words kept for an error. Use as a context: it is ended at the end.

    In a session of its own: Ctrl-C reaches only the demo, which ends its programs in the right order.
    """

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str], read: bool = False) -> None:
        self.name = name
        # not a pipe: nobody would read it while the program runs
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        try:
            self._process = subprocess.Popen(
                alone_in_session(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if read else self._errors,
                stderr=self._errors,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise DemoError(f"start {name}", str(error), f"try it by hand: {' '.join(command)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """DemoError with its last words if it ended."""
        code = self._process.poll()
        if code is not None:
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace").strip().splitlines()[-6:]
            told = "\n  ".join(["", *words]) if words else " without a word"
            raise DemoError(f"run {self.name}", f"it ended with code {code}:{told}", "read its last words above")


class Workload(Child):
    """A program that speaks the JSON lines of tools.bench.workloads."""

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str]) -> None:
        super().__init__(name, command, env, read=True)
        self._ready = threading.Event()
        self._windows: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        out = self._process.stdout
        assert out is not None
        with out:
            for line in out:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # a library's own words on stdout
                match event.get("event") if isinstance(event, dict) else None:
                    case "ready":
                        self._ready.set()
                    case "window":
                        self._windows.append(event)

    def wait_ready(self, idle_s: float = 120.0) -> None:
        """Until it is warmed up, however slow this machine is; DemoError when it ends first or hangs."""
        patience = Patience(idle_s, self.pid)
        while not self._ready.wait(0.1):
            self.check()
            if why := patience.spent():
                raise DemoError(f"start {self.name}", f"it is not ready and {why}", "is the GPU or the disk busy?")

    def between(self, begin: float, end: float) -> list[dict[str, Any]]:
        """The windows that lie within two CLOCK_MONOTONIC times."""
        return [w for w in list(self._windows) if w["t0"] >= begin and w["t1"] <= end]


def latency(windows: Sequence[dict[str, Any]]) -> Figures:
    """Percentiles over all latencies of the windows."""
    values = [value for window in windows for value in window.get("latency_us", ())]
    return Figures(percentile(values, 50), percentile(values, 99), len(values))


def throughput(windows: Sequence[dict[str, Any]]) -> float | None:
    """Items per second over the windows, None for none."""
    seconds = sum(window["t1"] - window["t0"] for window in windows)
    return sum(window.get("items", window["count"]) for window in windows) / seconds if seconds > 0 else None
