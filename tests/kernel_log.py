# SPDX-License-Identifier: Apache-2.0
"""What the driver writes into the kernel log; needs root."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from contextlib import suppress

_READ_ALL, _SIZE = 3, 10  # SYSLOG_ACTION_*, linux/syslog.h
_libc = ctypes.CDLL(None, use_errno=True)


class KernelLog:
    """The driver's lines from here on, by /dev/kmsg or, where that is not here, by syslog(2).

    OSError where neither may be read.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._fd = -1
        self._before: Counter[str] = Counter()
        with suppress(OSError):
            self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        if self._fd < 0:
            self._before = _by_syslog()

    def lines(self) -> list[str]:
        """All lines of the driver since this was made. RuntimeError where some were lost."""
        if self._fd < 0:
            return sorted((_by_syslog() - self._before).elements())
        while True:
            try:
                record = os.read(self._fd, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                return list(self._lines)
            except BrokenPipeError:
                raise RuntimeError("the kernel log was overwritten before it was read") from None
            text = record.partition(";")[2].partition("\n")[0]
            if "NVRM" in text:
                self._lines.append(text)


def _by_syslog() -> Counter[str]:
    size = _libc.klogctl(_SIZE, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 1))
    got = _libc.klogctl(_READ_ALL, buffer, len(buffer))
    if size < 0 or got < 0:
        raise OSError(ctypes.get_errno(), "neither /dev/kmsg nor syslog(2) lets the kernel log be read")
    text = buffer.raw[:got].decode("utf-8", "replace")
    return Counter(line for line in text.splitlines() if "NVRM" in line)
