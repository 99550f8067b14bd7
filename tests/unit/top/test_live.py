# SPDX-License-Identifier: Apache-2.0
"""detshare-top as a process: on a pipe, on a terminal, with a daemon of the model backend and without one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from detshare.ctl.client import Client
from detshare.ctl.core.patience import Patience
from tests.patience import IDLE_S, ended, run, until

pytestmark = pytest.mark.e2e

TOP = [sys.executable, "-m", "detshare.ctl.cli.top"]
BROKEN = """
import sys
from rich.console import Console
from detshare.ctl.top.app import run
from detshare.ctl.top.keys import View
class Broken:
    can_act = True
    def look(self): raise ZeroDivisionError("a fault of ours")
    def act(self, *args): return {}
sys.exit(run(Broken(), 0.1, Console(), 0, View()))
"""


@pytest.fixture(scope="module")
def run_dir() -> Iterator[Path]:
    """A daemon of the model backend; a short path, since sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dst-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", folder, "--backend", "model"],
                stderr=out,
            )
        try:
            until(lambda: daemon.poll() is not None or Client(folder).alive(), said=log.read_text)
            assert daemon.poll() is None, log.read_text()
            yield Path(folder)
        finally:
            daemon.terminate()
            ended(daemon)


def top(run_dir: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run(
        [*TOP, "--run-dir", str(run_dir), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **env},
    )


@pytest.mark.parametrize("width", [80, 160])
def test_once_on_a_pipe(run_dir: Path, width: int) -> None:
    done = top(run_dir, "--once", COLUMNS=str(width))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert "proof model" in lines[0]
    assert sum(".py" in line or "ipykernel" in line for line in lines) == 3


def test_once_filters_and_sorts(run_dir: Path) -> None:
    done = top(run_dir, "--once", "--filter", "train.py", "--sort", "pid")
    assert "train.py" in done.stdout
    assert "serve.py" not in done.stdout


def test_json_is_one_snapshot(run_dir: Path) -> None:
    found = json.loads(top(run_dir, "--json").stdout)
    assert (found["backend"], len(found["programs"])) == ("model", 3)


def test_a_live_screen_on_a_pipe_is_refused(run_dir: Path) -> None:
    done = top(run_dir)
    assert done.returncode == 2
    assert "--once" in done.stderr


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="with a driver a look without a daemon works")
def test_without_daemon_and_driver_the_error_says_what_to_do(tmp_path: Path) -> None:
    done = top(tmp_path / "none", "--once")
    assert done.returncode == 1
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr


class Terminal:
    """A program on a terminal of 80 by 24; `before` is the terminal's state when it started."""

    def __init__(self, command: Sequence[str]) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        env.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=env, start_new_session=True
        )
        self.seen = ""

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def until(self, what: str | Callable[[], bool]) -> None:
        """Read until a pattern was printed since the last call, or something holds."""
        self.seen = ""
        patience = Patience(IDLE_S)
        while not (re.search(what, self.seen) if isinstance(what, str) else what()):
            assert not patience.spent(), f"{what!r} did not come; seen: {self.seen[-3000:]}"
            ready, _, _ = select.select([self.master], [], [], 0.05)
            if ready:
                self.seen += os.read(self.master, 65536).decode(errors="replace")

    def ended(self) -> int:
        self.until(lambda: self.process.poll() is not None)
        return self.process.returncode


@contextlib.contextmanager
def terminal(command: Sequence[str]) -> Iterator[Terminal]:
    made = Terminal(command)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
        os.close(made.master)
        os.close(made.slave)


def live(run_dir: Path) -> list[str]:
    return [*TOP, "--run-dir", str(run_dir), "--interval", "0.2", "--sort", "pid"]


def test_keys_on_a_terminal_change_the_program(run_dir: Path) -> None:
    first = Client(run_dir).programs()["programs"][0]["pid"]

    def of_first(name: str) -> object:
        return next(p[name] for p in Client(run_dir).programs()["programs"] if p["pid"] == first)

    with terminal(live(run_dir)) as screen:
        screen.until("serve.py")
        assert not termios.tcgetattr(screen.slave)[3] & termios.ICANON
        screen.press("1")
        screen.until(lambda: of_first("class") == "high")
        screen.press("p")
        screen.until(lambda: of_first("state") == "paused")
        screen.until("paused")
        screen.press("p")
        screen.until(lambda: of_first("state") == "running")
        screen.press("w25\r")
        screen.until(lambda: of_first("weight") == 25)
        screen.press("r")
        screen.until(lambda: (of_first("class"), of_first("weight")) == (None, None))
        screen.press("q")
        assert screen.ended() == 0
        assert termios.tcgetattr(screen.slave) == screen.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_terminal_is_put_back_on_a_signal(run_dir: Path, number: signal.Signals) -> None:
    with terminal(live(run_dir)) as screen:
        screen.until("serve.py")
        screen.process.send_signal(number)
        screen.until(re.escape("\x1b[?1049l"))  # back from the alternate screen
        assert screen.ended() == 128 + number
        assert termios.tcgetattr(screen.slave) == screen.before


def test_the_terminal_is_put_back_when_top_itself_fails() -> None:
    with terminal([sys.executable, "-c", BROKEN]) as screen:
        screen.until("ZeroDivisionError: a fault of ours")
        assert screen.ended() == 1
        assert termios.tcgetattr(screen.slave) == screen.before


def test_a_daemon_that_goes_away_leaves_a_screen_that_says_so() -> None:
    with tempfile.TemporaryDirectory(prefix="dst-") as folder:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", folder, "--backend", "model"],
            stderr=subprocess.DEVNULL,
        )
        try:
            with terminal(live(Path(folder))) as screen:
                # first there is no daemon yet: the screen waits for one
                screen.until("serve.py")
                daemon.terminate()
                ended(daemon)
                screen.until("read-only")
                screen.press("j1")
                screen.until("no daemon answers")
                screen.press("q")
                assert screen.ended() == 0
        finally:
            daemon.kill()
            daemon.wait()
