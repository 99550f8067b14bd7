# SPDX-License-Identifier: Apache-2.0
"""Standard output, when a command ends: whether it took what was written to it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from typing import Final

import click

_FULL: Final = os.makedev(1, 7)
"""/dev/full"""


def written(program: str) -> None:
    """Ends `program` with exit code 1 where standard output does not take what was written to it; quietly for a pipe
    that nobody reads. To be called last, and where an OSError is handled, which may be that of another file.
    """
    said = sys.exc_info()[1]
    error = said if isinstance(said, OSError) and _of_output(said) else None
    try:
        if sys.stdout is not None:  # closed
            sys.stdout.flush()
    except OSError as late:
        error = late
    if error is None:
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter writes the rest when it ends
    if error.errno != errno.EPIPE:
        stopped = f"standard output takes nothing more ({error.strerror})"
        click.echo(f"{program}: write the answer: {stopped}\nnext: make room there, and run it again", err=True)
    sys.exit(1)


def _of_output(error: OSError) -> bool:
    """Whether writing to standard output gives this error now; nothing is written to find out.

    An unbuffered stream keeps nothing that a flush would write again.
    """
    if error.filename is not None:
        return False
    try:
        state = os.fstat(1)
        match error.errno:
            case errno.EBADF:
                return fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            case errno.ENOSPC if stat.S_ISREG(state.st_mode):
                return os.fstatvfs(1).f_bavail == 0
            case errno.ENOSPC:
                return stat.S_ISCHR(state.st_mode) and state.st_rdev == _FULL
    except OSError:
        pass
    return False
