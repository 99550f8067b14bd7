# SPDX-License-Identifier: Apache-2.0
"""Who looks at the page over TCP, where the kernel does not say: one-time codes, and tokens in exchange for them.

A member of the socket's group asks there for a code; the kernel says who he is. The browser changes the code into a
token, which is good for that user's rights and for some hours. Tokens are signed, not stored, so that a page goes on
when the daemon is started again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from detshare.ctl.core.errors import ControlError

__all__ = ["CODE_S", "KEY_NAME", "MOST_CODES", "TOKEN_S", "Sessions"]

CODE_S: Final = 300.0
"""how long a code may wait to be used"""
TOKEN_S: Final = 12 * 3600.0
MOST_CODES: Final = 256
"""that wait at once; the oldest is dropped for a further one"""
KEY_NAME: Final = "page.key"
_KEY_BYTES: Final = 32


class Sessions:
    """Codes and tokens of one daemon. `clock`: Unix seconds. For one thread."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = run_dir / KEY_NAME
        self._clock = clock
        self._codes: dict[str, tuple[int, float]] = {}
        """SHA-256 of a code -> (uid, until when)"""
        self._key = b""

    def code(self, uid: int) -> str:
        """A new code for a user. ControlError where the key cannot be kept."""
        self._load()
        now = self._clock()
        for each in [each for each, (_, until) in self._codes.items() if until <= now]:
            del self._codes[each]
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        made = secrets.token_urlsafe(24)
        self._codes[_digest(made)] = (uid, now + CODE_S)
        return made

    def begin(self, code: str) -> tuple[str, float] | None:
        """The token that a code is given for, once, and until when it is good; None where the code is not, or not any
        more."""
        uid, until = self._codes.pop(_digest(code), (-1, 0.0))
        if until <= self._clock():
            return None
        expires = int(self._clock() + TOKEN_S)
        told = f"{uid}.{expires}"
        return f"{told}.{self._sign(told)}", float(expires)

    def uid_of(self, token: str) -> int | None:
        """Whose token it is; None where it is none of ours, or not any more."""
        told, _, signature = token.rpartition(".")
        uid, _, expires = told.partition(".")
        # what is signed is ours, so its parts are numbers
        if not hmac.compare_digest(self._sign(told).encode(), signature.encode(errors="replace")):
            return None
        return int(uid) if int(expires) > self._clock() else None

    def revoke(self) -> None:
        """Every code and token ends. ControlError where the new key cannot be kept."""
        self._codes.clear()
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unkept(error) from error
        self._key = b""
        self._load()

    def _sign(self, told: str) -> str:
        self._load()
        return hmac.new(self._key, f"detshare page 1 {told}".encode(errors="replace"), hashlib.sha256).hexdigest()

    def _load(self) -> None:
        """Read the key, or make one: the run directory is the daemon's, and nobody else may read the file."""
        if self._key:
            return
        try:
            if self._path.exists():
                self._key = self._path.read_bytes()
            if len(self._key) != _KEY_BYTES:  # none, or one that was cut off by a full disk
                self._path.unlink(missing_ok=True)
                made = secrets.token_bytes(_KEY_BYTES)
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(made)
                self._key = made
        except OSError as error:
            self._key = b""
            raise self._unkept(error) from error

    def _unkept(self, error: OSError) -> ControlError:
        stopped = f"{self._path} cannot be read or written ({error.strerror})"
        return ControlError("let somebody see the page", stopped, "is there room in the run directory?")


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode(errors="replace")).hexdigest()
