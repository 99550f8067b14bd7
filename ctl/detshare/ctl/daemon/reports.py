# SPDX-License-Identifier: Apache-2.0
"""The socket on which programs report how long their requests took: datagrams, never answered.

The kernel says who sent each of them (SCM_CREDENTIALS: as SO_PEERCRED, but of the process that sends, not of the one
that connected). Its queue is short, and who finds it full loses what it sends: nobody waits for the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from detshare.ctl.daemon.requests import Table

__all__ = ["BYTES_S", "HEAD", "MOST_BYTES", "Reports"]

log = logging.getLogger("detshared.reports")

MOST_BYTES: Final = 8192
"""of a datagram"""
BYTES_S: Final = 1 << 19
"""are read a second, of all programs together: what is more waits in the kernel's queue, or is lost by who sends it"""
HEAD: Final = 128
"""bytes that a datagram counts for besides its own"""
_TURN: Final = 64
"""are read before others have the loop"""
_REST_S: Final = 0.1
_CREDENTIALS: Final = struct.Struct("3i")


class Reports:
    """One for each daemon; for the thread of its loop."""

    def __init__(self, table: Table, clock: Callable[[], float] = time.monotonic) -> None:
        self._table, self._clock = table, clock
        self._socket: socket.socket | None = None
        self._path: Path | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left, self._filled = float(BYTES_S), clock()
        self._resting: asyncio.TimerHandle | None = None

    def open(self, path: Path, let_in: Callable[[Path], None]) -> None:
        """Read from a socket at `path`, to which `let_in` gives its owner and mode. OSError."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            path.unlink(missing_ok=True)
            old = os.umask(0o177)
            try:
                made.bind(str(path))
            finally:
                os.umask(old)
            let_in(path)
        except OSError:
            made.close()
            raise
        self._loop = asyncio.get_running_loop()
        self._socket, self._path = made, path
        self._loop.add_reader(made, self._readable)

    def _readable(self) -> None:
        assert self._socket is not None
        now = self._clock()
        self._left = min(float(BYTES_S), self._left + (now - self._filled) * BYTES_S)
        self._filled = now
        for _ in range(_TURN):
            if self._left < 0:
                self._rest()
                return
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(MOST_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                log.warning("reports of programs cannot be read: %s", error)
                self._rest()
                return
            self._left -= HEAD + len(data)
            pid = _sender(ancillary)
            if pid <= 0 or flags & socket.MSG_TRUNC:
                self._table.refused += 1
            else:
                self._table.take(pid, data)

    def _rest(self) -> None:
        assert self._loop is not None
        if self._socket is not None and self._resting is None:
            self._loop.remove_reader(self._socket)
            self._resting = self._loop.call_later(_REST_S, self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        if self._socket is not None and self._loop is not None:
            self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Idempotent."""
        if self._socket is None or self._loop is None:
            return
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """PID of who sent it, as seen from here; 0 where the kernel did not say, or it is in another PID namespace."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return 0
