# SPDX-License-Identifier: Apache-2.0
"""Progress for a person: one line a step on stderr, so that stdout stays the guest command's own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_quiet = False
_other: Callable[[str], None] | None = None


def be_quiet(quiet: bool) -> None:
    """Whether steps are told at all. Errors always are."""
    global _quiet
    _quiet = quiet


def redirect(to: Callable[[str], None] | None) -> None:
    """Steps go to `to` instead of stderr; None: to stderr again."""
    global _other
    _other = to


def say(text: str) -> None:
    """Tells a step."""
    if _other is not None:
        _other(text)
    elif not _quiet:
        warn(text)


def warn(text: str) -> None:
    """One line on stderr, whatever is told of steps."""
    print(f"detshare-vm: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Tells what begins and, when it took a second or more, how long it took."""
    say(f"{text} ...")
    begin = time.monotonic()
    yield
    took = time.monotonic() - begin
    if took >= 1:
        say(f"{text}: {took:.0f} s")
