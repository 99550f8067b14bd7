# SPDX-License-Identifier: Apache-2.0
"""What the person sees while the demo runs, and the commands that it types for him."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

from detshare.ctl.client import Client
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.patience import Patience
from detshare.tools.demo.children import Child
from detshare.tools.demo.errors import DemoError

_MODULES = {
    "detshared": "detshare.ctl.daemon.detshared",
    "detshare-ctl": "detshare.ctl.cli",
    "detshare-top": "detshare.ctl.cli.top",
}


def program(name: str) -> list[str]:
    """The console script beside this interpreter, or its module where DetShare is not installed."""
    beside = Path(sys.executable).parent / name
    return [str(beside)] if beside.exists() else [sys.executable, "-m", _MODULES[name]]


class Screen:
    """Progress, one line a step."""

    def __init__(self, out: TextIO, began: float = 0.0) -> None:
        """`began`: seconds that passed before."""
        self._out = out
        self._begin = time.monotonic() - began

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._begin

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def step(self, text: str) -> None:
        self.say(f"[{self.seconds:4.0f} s] {text}")

    def wait(self, what: str, seconds: float) -> None:
        """Say it and let the time pass."""
        self.step(f"{what}: {seconds:.0f} s")
        time.sleep(seconds)


class Commands:
    """Runs detshare-ctl and detshare-top as a person would, and shows what was typed and answered."""

    def __init__(self, run_dir: Path, screen: Screen) -> None:
        self._run_dir, self._screen = run_dir, screen

    def ctl(self, *words: str) -> None:
        """detshare-ctl WORDS; DemoError when it fails."""
        self._run("detshare-ctl", "--run-dir", str(self._run_dir), *words)

    def top(self) -> None:
        self._run("detshare-top", "--run-dir", str(self._run_dir), "--once")

    def _run(self, name: str, *words: str) -> None:
        self._screen.say(f"\n$ {shlex.join([name, *words])}")
        try:
            done = subprocess.run(
                [*program(name), *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "COLUMNS": os.environ.get("COLUMNS", "100"), "PYTHONIOENCODING": "utf-8"},
            )
        except OSError as error:
            raise DemoError(f"run {name} {words[-1]}", str(error), f"{name} --help") from error
        for text in (done.stdout, done.stderr):
            if text.strip():
                self._screen.say(text.rstrip())
        if done.returncode != 0:
            asked = shlex.join([name, *words])
            raise DemoError(
                asked, f"it ended with code {done.returncode}", "its words are above; try detshare-ctl doctor"
            )


def start_daemon(run_dir: Path, backend: str) -> Child:
    """A detshared of our own; the caller waits for it with `wait_daemon` inside its context."""
    command = [
        *program("detshared"),
        "--run-dir",
        str(run_dir),
        "--backend",
        backend,
        "--log-level",
        "warning",
    ]
    return Child("detshared", command, dict(os.environ))


def wait_daemon(daemon: Child, client: Client, idle_s: float = 120.0) -> None:
    """Until it answers, however slow this machine is; DemoError, with its last words if it ends, where it hangs."""
    patience = Patience(idle_s, daemon.pid)
    while True:
        daemon.check()
        why = patience.spent()
        try:
            if client.alive():
                client.programs()
                return
        except ControlError as error:
            if why:
                raise DemoError("start detshared", error.stopped, error.next_step) from error
        if why:
            raise DemoError("start detshared", f"it does not answer and {why}", "is the driver busy?")
        time.sleep(0.05)
