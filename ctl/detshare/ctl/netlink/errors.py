# SPDX-License-Identifier: Apache-2.0
"""What goes wrong between us and detshare.ko."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyroute2.netlink.exceptions import NetlinkDecodeError, NetlinkError

from detshare.ctl.core.driver import DriverError


class ModuleAbsent(DriverError):
    """detshare.ko is not loaded, or was unloaded meanwhile."""


class KernelRefused(DriverError):
    """detshare.ko refused a command. `code` is an errno; the message holds the kernel's own words."""

    def __init__(self, asked: str, code: int, words: str) -> None:
        super().__init__(f"{asked}: the kernel module refused: {words or os.strerror(code)}")
        self.code = code
        self.words = words


@contextmanager
def told(asked: str) -> Iterator[None]:
    """Errors of a netlink exchange as ModuleAbsent, KernelRefused or OSError, with what was asked."""
    try:
        yield
    except NetlinkError as error:
        words = str(error.args[1]) if len(error.args) > 1 else ""
        raise KernelRefused(asked, error.code, words) from error
    except NetlinkDecodeError as error:
        raise OSError(errno.EBADMSG, f"{asked}: the answer cannot be read ({error.exception})") from error
    except ValueError as error:
        raise OSError(errno.EBADMSG, f"{asked}: {error}") from error
