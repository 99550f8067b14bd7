# SPDX-License-Identifier: Apache-2.0
"""The small interface that the daemon, the CLI and policies see of any backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from detshare.ctl.core.driver import DriverError, ProcessId
from detshare.ctl.core.snapshot import Check, Event, Outcome, Snapshot
from detshare.ctl.core.verb import Request


class BadRequest(ValueError):
    """The request cannot be meant: the message says what was asked and what would be accepted."""


class NeedsModule(DriverError):
    """Only the kernel module can do that, and another backend is in force."""

    def __init__(self, backend: str, lacks: str) -> None:
        super().__init__(f"backend {backend} holds {lacks}: that takes the kernel module, detshare.ko")


class NoSpatialLane(DriverError):
    """There is no daemon here that serves the spatial lane."""

    def __init__(self, why: str = "this command acts without a daemon") -> None:
        super().__init__(f"the spatial lane is off: {why}")


class Backend(Protocol):
    """Blocking and single-threaded: the daemon calls it from one worker thread.

    `who` selects programs: a PID, a container id (at least 12 hex digits) or a shell pattern matched against the
    command line (see detshare.ctl.core.select). BadRequest where `who` or a value is malformed; a well-formed `who`
    that matches nothing gives an Outcome with nothing changed and a Skip of pid 0.
    """

    @property
    def name(self) -> str: ...

    def look(self, *, enforce: bool = True) -> Snapshot:
        """Find and adopt programs and describe all; with `enforce`, apply what was asked for first."""
        ...

    def stirs(self) -> bool:
        """Whether a look may find what the last one did not. Cheap, where a backend can tell."""
        return True

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        """Verb -> what does it, called with `who` and the verb's arguments."""
        ...

    def do(self, request: Request) -> Outcome:
        """Do a verb. NeedsModule or NoSpatialLane for one that is not in the table."""
        verb = request.verb
        act = self.table.get(verb.name)
        if act is None:
            raise NeedsModule(self.name, verb.lacks) if verb.lacks else NoSpatialLane()
        return act(request.who, **request.args)

    def kept(self, pid: int) -> Mapping[str, object]:
        """What set-priority was given for a program of the last look besides a class, as arguments of that verb."""
        return {}

    def alive(self, process: ProcessId) -> bool:
        """Whether a process of the last look still lives. Quick, and the one method that any thread may call."""
        ...

    def doctor(self) -> list[Check]: ...

    def drain_events(self) -> Sequence[Event]:
        """Events since the last call, oldest first."""
        ...

    def listen(self, tell: Callable[[Event], None], edge: Callable[[int, bool], None] | None = None) -> None:
        """Call `tell`, from any thread, with each event of the kernel module at once instead of keeping it for
        drain_events(). Backends without such events do nothing.

        `edge`: called the same way, while `attend(True)` holds, with the PID of each program that begins to work (True)
        or stops (False).
        """
        return None

    def attend(self, on: bool) -> None:
        """Have `edge` of `listen` called, or not any more. It costs each burst of launches a page fault. Backends that
        cannot tell do nothing."""
        return None

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when apply_early() or a look would find something new. Backends that cannot
        tell do nothing."""
        return None

    def apply_early(self) -> None:
        """Give contexts that were just made what was asked for them; what a look would do, without looking. Quick."""
        return None

    def stand(self, rules: Mapping[str, str]) -> None:
        """Command pattern -> class of programs of which nobody asked anything; the first that matches counts."""
        return None

    def close(self, restore: bool = True) -> None:
        """Stop; with `restore`, first put every program back as it was found. Idempotent.

        A one-shot command closes with restore=False: what it set stands, and the journal in the run directory
        lets a later `release` undo it.
        """
        ...
