# SPDX-License-Identifier: Apache-2.0
"""The run directory: who may change this machine's programs at a moment (one at a time), and where the socket lies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from detshare.ctl.core.errors import ControlError

DEFAULT_RUN_DIR: Final = Path("/run/detshare")
SOCKET_NAME: Final = "detshared.sock"
REPORTS_NAME: Final = "reports.sock"
"""beside it: datagrams of programs that tell how long their requests took"""
MACHINE = Path("/run/detshare/machine.lock")
"""held by whoever may change this machine's real programs, whatever its run directory: two would take each other's
slices for the programs' own"""


def default_run_dir() -> Path:
    """DETSHARE_RUN_DIR, or /run/detshare."""
    return Path(os.environ.get("DETSHARE_RUN_DIR") or DEFAULT_RUN_DIR)


COMMAND: Final = "detshare-ctl"
"""what the name of a holder begins with that does one thing, and ends"""


class Held(ControlError):
    """Another process holds the lock. `pid` is 0 where it did not say."""

    def __init__(self, asked: str, path: Path, holder: str) -> None:
        pid, _, name = holder.strip().partition(" ")
        self.pid = int(pid) if pid.isdecimal() and pid.isascii() else 0
        self.name = name or "another process"
        who = f"{self.name} (PID {self.pid})" if self.pid else self.name
        end = f"end it first (kill {self.pid})" if self.pid else "end it first"
        other = "" if path == MACHINE else ", or use another --run-dir"
        super().__init__(asked, f"{who} holds {path}", end + other)


def prepare(run_dir: Path, asked: str, *, make: bool = True) -> None:
    """Make the directory, mode 0700, or check that it is ours and nobody else can write there.

    Without `make` one that is not there is left so.
    """
    try:
        if make:
            run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = run_dir.stat()
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError):
            return
        stopped = f"{run_dir} cannot be made or read ({error.strerror})"
        raise ControlError(asked, stopped, "run it as root, or give a folder of yours with --run-dir") from error
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        stopped = f"{run_dir} belongs to uid {info.st_uid} with mode {stat.S_IMODE(info.st_mode):o}"
        following = "use a --run-dir of your own that only you can write to (mode 0700 or 0755)"
        raise ControlError(asked, stopped, following)


class Lock:
    """flock on a file, in which the holder leaves its PID and name. Given up with the process at the latest."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._fd = -1

    def acquire(
        self, asked: str, patience: float = 0.0, commands: float = 0.0, waits: Callable[[str], object] | None = None
    ) -> None:
        """Take it within `patience` seconds, or `commands` where a command has it, which ends by itself; else Held.

        `waits` is told once for which command, after `patience`.
        """
        path = self._path
        if path == MACHINE and not path.parent.exists():
            prepare(path.parent, asked)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            stopped = f"{path} cannot be opened ({error.strerror})"
            raise ControlError(asked, stopped, "run it as root, or give a folder of yours with --run-dir") from error
        begun = time.monotonic()
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(fd, 200, 0).decode(errors="replace")
                ends = holder.partition(" ")[2].startswith(COMMAND)
                passed = time.monotonic() - begun
                if passed < (max(patience, commands) if ends else patience):
                    if waits is not None and passed >= patience:
                        waits(holder.strip())
                        waits = None
                    time.sleep(0.02)
                    continue
                os.close(fd)
                raise Held(asked, path, holder) from None
            break
        self._fd = fd
        with contextlib.suppress(OSError):  # full: the lock holds without a name in it
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()} {self._name}\n".encode(), 0)

    def release(self) -> None:
        """Give it up; idempotent. The file stays: removing it would let two hold a lock each."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
