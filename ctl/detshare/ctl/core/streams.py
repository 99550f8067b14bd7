# SPDX-License-Identifier: Apache-2.0
"""What a command writes its answer to: a terminal, pipe or file of any encoding, which may be full."""

from __future__ import annotations

import contextlib
import errno
import io
import sys
from collections.abc import Iterator
from typing import Final

from detshare.ctl.core.errors import ControlError

ASKED: Final = "write the answer"
"""what was asked of an error that can be told on standard error alone"""
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
        if error.errno not in _FULL or error.filename is not None:
            raise
        stopped = f"standard output takes nothing more ({error.strerror}); what was asked may be done"
        raise ControlError(ASKED, stopped, "make room there, then see: detshare-ctl ps") from error
