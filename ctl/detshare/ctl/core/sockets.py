# SPDX-License-Identifier: Apache-2.0
"""Connections to a UNIX socket that many want at once."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

__all__ = ["connect"]


def connect(made: socket.socket, path: Path, seconds: float | None) -> None:
    """Connect, waiting so long for room in the listener's queue, and leave it as the timeout. OSError, TimeoutError.

    Under a timeout of Python's own a full queue is an error at once: the socket is one that does not wait.
    """
    made.settimeout(None)
    if seconds is not None:
        whole = max(1, round(seconds * 1e6))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole // 1_000_000, whole % 1_000_000))
    try:
        made.connect(str(path))
    except BlockingIOError:
        raise TimeoutError from None
    made.settimeout(seconds)
