# SPDX-License-Identifier: Apache-2.0
"""Latencies of a program on their way to the daemon: kept for a moment, sent together, lost rather than waited for."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from pathlib import Path
from typing import Final

from detshare.ctl.core.rundir import REPORTS_NAME, default_run_dir

__all__ = ["Reporter"]

EVERY_S: Final = 0.05
"""between two datagrams"""
AGAIN_S: Final = 1.0
"""from one that was not taken to the next"""
MOST: Final = 256
"""values in a datagram; where they come faster it is sent sooner"""
LONGEST_S: Final = 3600.0
"""of a request"""
_REASONS: Final = {
    errno.ENOENT: "no daemon answers on {path}",
    errno.ECONNREFUSED: "no daemon answers on {path}",
    errno.EACCES: "{path} belongs to another user: be a member of its group",
    errno.EAGAIN: "the daemon has more reports than it takes",
}


class Reporter:
    """For any thread, and over a fork. No method raises or waits."""

    def __init__(self, run_dir: Path | str | None = None, pid: int | None = None) -> None:
        """`pid`: whose requests, this process's unless given."""
        folder = Path(run_dir) if run_dir is not None else default_run_dir()
        self._path = str(folder / REPORTS_NAME)
        self._head = b"" if pid is None else b"for %d\n" % pid
        self._kept: list[float] = []
        self._due = 0.0
        self._failed = False
        """the last datagram was not taken"""
        self._socket: socket.socket | None = None
        self._owner = os.getpid()
        self._sending = threading.Lock()
        self.lost = 0
        """values that were not taken"""
        self.reason = "nothing was reported yet"
        """why the last ones were not taken; empty where they were"""

    def observe(self, seconds: float) -> None:
        """One request took so long."""
        try:
            # a float of this moment: arrays compare as numbers do, and change
            value = float(seconds) if 0 < seconds <= LONGEST_S else 0.0
        except Exception:  # noqa: BLE001  whatever a number of others raises
            value = 0.0
        if not value:
            self.lost += 1
            self.reason = f"a request takes more than 0 and at most {LONGEST_S:g} s"
            return
        self._kept.append(value)
        if time.monotonic() >= self._due or (len(self._kept) >= MOST and not self._failed):
            self.flush()
        elif len(self._kept) > 4 * MOST:
            kept, self._kept = self._kept, []
            self.lost += len(kept)

    def flush(self) -> None:
        """Send what is kept, if no other thread does so already."""
        if os.getpid() != self._owner:  # a fork: what was kept is the parent's to send, and its lock may be taken
            self._owner, self._sending = os.getpid(), threading.Lock()
            self._kept = self._kept[-1:]
        if self._sending.acquire(blocking=False):
            try:
                self._send()
            finally:
                self._sending.release()

    def _send(self) -> None:
        kept, self._kept = self._kept, []
        for begin in range(0, len(kept), MOST):
            lines = b"".join([b"%.9f\n" % value for value in kept[begin : begin + MOST]])
            try:
                if self._socket is None:
                    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
                    self._socket = socket.socket(socket.AF_UNIX, kind)
                # by its path each time: a daemon that was started again has another socket there
                self._socket.sendto(self._head + lines, self._path)
            except OSError as error:
                self.lost += len(kept) - begin
                reason = _REASONS.get(error.errno or 0, f"{{path}}: {error.strerror}")
                self.reason = reason.format(path=self._path)
                self._failed, self._due = True, time.monotonic() + AGAIN_S
                return
            self.reason, self._failed, self._due = "", False, time.monotonic() + EVERY_S
