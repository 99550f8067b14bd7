# SPDX-License-Identifier: Apache-2.0
"""Whom a command talks to: the daemon where there is one, else this process itself for one look and one verb."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from detshare.ctl import oneshot
from detshare.ctl.client import ANSWER_SECONDS, Client
from detshare.ctl.core import rundir
from detshare.ctl.core.errors import ControlError

PATIENCE: Final = 5.0
"""seconds to wait for another one-shot command to finish, or for a daemon that has the lock to open its socket"""


class Control(Protocol):
    """What `Client` and `OneShot` have in common. Errors are ControlError."""

    def programs(self) -> dict[str, Any]: ...
    def verb(self, name: str, who: str, **args: object) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Place:
    """What the global options say."""

    run_dir: Path
    backend: str
    answer_s: float = ANSWER_SECONDS
    """how long a daemon may do nothing instead of answering"""

    def client(self) -> Client:
        return Client(self.run_dir, self.answer_s)

    @contextlib.contextmanager
    def control(self, asked: str, *, changes: bool, guarded: bool = False) -> Iterator[tuple[Control, bool]]:
        """The control, and whether it is a daemon."""
        client = self.client()
        until = time.monotonic() + PATIENCE
        lock = changes or self.run_dir.exists()  # what was asked for, and a look may apply, is kept there
        with contextlib.ExitStack() as stack:
            while not client.alive():
                shot = oneshot.OneShot.open(self.backend, self.run_dir, asked, lock=lock, guarded=guarded)
                try:
                    made = stack.enter_context(shot)
                except rundir.Held as held:
                    # Another command's lock does not keep us from looking; a daemon's does: it is about to answer.
                    lock = changes or held.name == "detshared"
                    if time.monotonic() > until:
                        raise
                    if lock:
                        time.sleep(0.05)
                else:
                    yield made, False
                    return
            yield client, True


def gone(asked: str, place: Place) -> ControlError:
    """For what only a daemon can do."""
    start = f"start it: {oneshot.start_command(place.backend, place.run_dir)}"
    return ControlError(asked, f"that needs the daemon, and none answers on {place.client().socket}", start)
