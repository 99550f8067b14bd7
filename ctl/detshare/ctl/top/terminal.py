# SPDX-License-Identifier: Apache-2.0
"""The terminal while top runs: keys one by one, and everything put back on every way out."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import tty
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_PIECES_SECONDS = 0.05
"""how long the rest of an escape sequence may take; then it was the escape key"""


@contextlib.contextmanager
def keys_one_by_one(fd: int) -> Iterator[None]:
    """No echo and no line editing on the terminal `fd` within the block."""
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSANOW)
        mode = termios.tcgetattr(fd)
        # ^Z would leave the shell with a terminal in this state
        mode[6][termios.VSUSP] = os.fpathconf(fd, "PC_VDISABLE").to_bytes(1, "little")
        termios.tcsetattr(fd, termios.TCSANOW, mode)
        yield
    finally:
        # FLUSH: what was typed was meant for us, not for the shell. One that hung up has nothing to restore.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSAFLUSH, before)


class Waiter:
    """Waits for keys, a change of size, a signal to end, or `wake` from another thread. Use as a context."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.ended_by = 0
        """number of the signal that asked us to end; 0 for none"""
        self.hung_up = False
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Waiter:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda _number, _frame: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave back
        signal.set_wakeup_fd(self._old_wakeup)
        # the pipe stays open: a collector thread that still looks may wake us once more

    def _end(self, number: int, _frame: FrameType | None) -> None:
        # no exception from here: it could strike while the terminal is being put back
        if self.ended_by:
            raise SystemExit(128 + number)
        self.ended_by = number

    @property
    def over(self) -> bool:
        """A signal asked us to end, or the terminal went away."""
        return bool(self.ended_by) or self.hung_up

    def wake(self) -> None:
        """End the wait; from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def wait(self, seconds: float, in_pieces: bool = False) -> bytes:
        """What was typed; b"" when the time is over or something else came."""
        timeout = min(seconds, _PIECES_SECONDS) if in_pieces else seconds
        ready, _, _ = select.select([self._fd, self._read], [], [], max(timeout, 0.0))
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._read, 4096):
                    pass
        if self._fd not in ready:
            return b""
        try:
            data = os.read(self._fd, 4096)
        except OSError:  # EIO: the terminal went away
            data = b""
        self.hung_up = not data
        return data
