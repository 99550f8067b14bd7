# SPDX-License-Identifier: Apache-2.0
"""systemd's journal in its own protocol: an entry with fields for each record.

Source: systemd, "Native Journal Protocol". A field is NAME=value and a line end; or, where the value has line ends in
it, NAME, a line end, its length as 64 bits (little endian), the value, a line end. One datagram is one entry; what is
too long for a datagram goes into a sealed memory file whose descriptor is sent instead.
"""

from __future__ import annotations

import array
import errno
import fcntl
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["SOCKET", "Journal", "entry", "is_stderr"]

SOCKET: Final = Path("/run/systemd/journal/socket")
_PRIORITY: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""level -> syslog's number; what is less is 7, debug"""
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def is_stderr(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether standard error is the journal: JOURNAL_STREAM names its device and inode (systemd.exec(5))."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(2)
        return (found.st_dev, found.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):
        return False


def entry(fields: Mapping[str, str]) -> bytes:
    """The bytes of one entry. Names are capitals, digits and _, and begin with a capital."""
    made = bytearray()
    for name, text in fields.items():
        value = text.encode("utf-8", "replace")
        if b"\n" in value:
            made += name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
        else:
            made += name.encode() + b"=" + value + b"\n"
    return bytes(made)


def _more(record: logging.LogRecord) -> dict[str, str]:
    """What a record has besides its message, each as DETSHARE_...; what is not known has no field."""
    given: Mapping[str, Any] = getattr(record, "fields", {})
    made = {}
    for name, value in given.items():
        if value is not None and value != "":
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            made[f"DETSHARE_{name.upper()}"] = text
    return made


class Journal(logging.Handler):
    """Sends records to the journal; while its socket does not take them, to standard error, which is the journal too.

    `clean` makes a message what may be shown.
    """

    def __init__(self, clean: Callable[[str], str] = str, path: Path = SOCKET) -> None:
        super().__init__()
        self._clean = clean
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._instead = logging.StreamHandler()
        self._traces = logging.Formatter()

    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """The form of lines on standard error; entries have fields instead."""
        self._instead.setFormatter(fmt)

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises."""
        try:
            self._send(entry(self._fields(record)))
        except (OSError, ValueError, TypeError):
            self._instead.handle(record)

    def _fields(self, record: logging.LogRecord) -> dict[str, str]:
        priority = next((number for level, number in _PRIORITY if record.levelno >= level), 7)
        made = {
            "MESSAGE": self._clean(record.getMessage()),
            "PRIORITY": str(priority),
            "SYSLOG_IDENTIFIER": "detshared",
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "",
        }
        if record.exc_info:
            made["TRACE"] = self._traces.formatException(record.exc_info)
        return made | _more(record)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendto(data, self._path)
            return
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
        memory = os.memfd_create("detshared-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(memory), "wb") as file:
                file.write(data)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
            descriptors = array.array("i", [memory])
            self._socket.sendmsg([], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)], 0, self._path)
        finally:
            os.close(memory)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
        super().close()
