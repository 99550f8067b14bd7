# SPDX-License-Identifier: Apache-2.0
"""A process that keeps duplicates of other processes' descriptors, as monitors and debuggers do.

It reads lines "PID FD" and answers each with the number of its duplicate, until its input ends.
"""

from __future__ import annotations

import ctypes
import os
import sys

_SYS_PIDFD_GETFD = 438  # asm-generic/unistd.h


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    print("up", flush=True)
    for line in sys.stdin:
        pid, fd = map(int, line.split())
        pidfd = os.pidfd_open(pid)
        print(libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0), flush=True)
        os.close(pidfd)


if __name__ == "__main__":
    main()
