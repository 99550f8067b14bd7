# SPDX-License-Identifier: Apache-2.0
"""What the driver writes into the kernel log; needs root."""

from __future__ import annotations

import os


class KernelLog:
    """Its lines from here on. OSError where /dev/kmsg may not be read."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        """All lines of the driver since this was made. RuntimeError where some were lost."""
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

    def close(self) -> None:
        os.close(self._fd)
