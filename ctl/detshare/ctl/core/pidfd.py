# SPDX-License-Identifier: Apache-2.0
"""pidfd_getfd(2), which Python's os module lacks."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_PIDFD_GETFD = 438  # the same on every architecture (asm-generic/unistd.h)


def getfd(pidfd: int, fd: int) -> int:
    """A duplicate of descriptor `fd` of the process, closed on exec. OSError: EPERM, EBADF, ESRCH."""
    copy: int = _libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0)
    if copy < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return copy
