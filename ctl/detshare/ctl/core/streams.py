# SPDX-License-Identifier: Apache-2.0
"""What a command writes its answer to: a terminal, pipe or file of any encoding, which may be full."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from detshare.ctl.core.errors import ControlError

ASKED: Final = "write the answer"
"""what was asked of an error that can be told on standard error alone"""
FULL: Final = os.makedev(1, 7)
"""/dev/full"""
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def any_encoding() -> None:
    """Show what the encoding of standard output lacks as ?: commands of programs may hold any character."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def utf8() -> bool:
    """Whether standard output takes more than ASCII for certain."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    return encoding.lower().replace("-", "") == "utf8"


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """ControlError where what is written in the block finds no room."""
    try:
        yield
    except OSError as error:
        if not _of_output(error) and (error.errno not in _FULL or error.filename is not None):
            raise
        if _of_output(error):
            _drop()
        stopped = f"standard output takes nothing more ({error.strerror}); what was asked may be done"
        raise ControlError(ASKED, stopped, "make room there, then see: detshare-ctl ps") from error


def hold() -> None:
    """Where standard output is closed, writing to it fails from now on, and no other file takes its number."""
    if sys.stdout is None:
        fd = os.open(os.devnull, os.O_RDONLY)
        if fd != 1:
            os.dup2(fd, 1, inheritable=False)
            os.close(fd)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as long as the process


class Tells(click.Command):
    """A program that says in words that standard output does not take its answer, its help for one."""

    def main(self, *args: Any, **extra: Any) -> Any:
        hold()
        try:
            return super().main(*args, **extra)
        finally:
            written(str(self.name))


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
    _drop()
    if error.errno != errno.EPIPE:
        stopped = f"standard output takes nothing more ({error.strerror})"
        click.echo(f"{program}: write the answer: {stopped}\nnext: make room there, and run it again", err=True)
    sys.exit(1)


def _drop() -> None:
    """Send what standard output did not take nowhere: the interpreter writes it again when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


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
                return stat.S_ISCHR(state.st_mode) and state.st_rdev == FULL
    except OSError:
        pass
    return False
