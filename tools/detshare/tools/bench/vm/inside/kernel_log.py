# SPDX-License-Identifier: Apache-2.0
"""The kernel's log as a program in the guest reads it: reports of faults are counted, and so is what was missed."""

from __future__ import annotations

import errno
import os
import re
import select
import threading
from pathlib import Path

from detshare.tools.vm.splat import splat

__all__ = ["KernelLog", "Tally"]

_RECORD = re.compile(r"(\d+),(\d+),\d+,[^;]*;(.*)", re.DOTALL)
"""priority and facility, sequence number, microseconds, flags; the text, then lines of a dictionary (devkmsg_read)"""
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_LONGEST = 1 << 16


class Tally:
    """Counts over the records of /dev/kmsg, given in order from the first that the kernel ever wrote."""

    def __init__(self) -> None:
        self.lines = 0
        """lines that the kernel itself wrote; what programs write to /dev/kmsg does not count"""
        self.faults: list[str] = []
        """lines that begin a report: oops, WARNING, BUG, refcount and what else detshare.tools.vm.splat knows"""
        self.lost = 0
        """records that were overwritten before they could be read"""
        self._next = 0

    def take(self, record: str) -> None:
        """One record as read(2) gives it."""
        match = _RECORD.match(record)
        if match is None:
            raise ValueError(f"read /dev/kmsg: no record: {record!r}")
        code, number = int(match[1]), int(match[2])
        self.lost += max(0, number - self._next)
        self._next = number + 1
        if code >> 3:  # a facility other than the kernel
            return
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), match[3].partition("\n")[0])
        for line in text.splitlines():
            self.lines += 1
            if splat(line) is not None:
                self.faults.append(line)


class KernelLog:
    """Reads along in a thread from the oldest record on, so that a flood does not overwrite what was not yet seen."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._tally = Tally()
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._follow, name="kernel log", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        poll = select.poll()
        for file in (self._file, self._wake):
            poll.register(file, select.POLLIN)
        while not any(file == self._wake for file, _ in poll.poll()):
            self._drain()

    def _drain(self) -> None:
        while True:
            try:
                record = os.read(self._file, _LONGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten; the next read goes on behind the gap, which take() counts
                    continue
                raise
            self._tally.take(record.decode(errors="replace"))

    def close(self) -> Tally:
        """What there was until now; nothing is read afterwards."""
        os.write(self._waker, b"x")
        self._thread.join()
        self._drain()
        for file in (self._file, self._wake, self._waker):
            os.close(file)
        return self._tally
