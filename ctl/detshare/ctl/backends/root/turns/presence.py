# SPDX-License-Identifier: Apache-2.0
"""Which programs of the foreground count. One that only has a context, and runs nothing, delays nobody."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from detshare.ctl.backends.root.turns.members import Cast
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Program

SILENT_S: Final = 1.0
"""a program that nobody manages does not count while the log has not shown it for so long"""
IDLE_S: Final = 10.0
"""nor does any other; the first request after that may wait for a slice of 2 ms"""


class Presence:
    """The foregrounds of the GPUs of one driver. Seconds of the caller's clock."""

    def __init__(self) -> None:
        self._cast = Cast((), {})
        self._heard: dict[tuple[ProcessId, str], float] = {}
        """when a program had a GPU last, or came there"""
        self._counts: dict[str, tuple[Program, ...]] = {}

    def update(self, cast: Cast, now: float) -> None:
        """Who is there from now on."""
        self._cast = cast
        places = [(p.id, gpu) for gpu, programs in cast.foreground.items() for p in programs]
        self._heard = {place: self._heard.get(place, now) for place in places}
        self._counts = {gpu: self._now(gpu, now) for gpu in cast.foreground}

    def look(self, gpu: str, seen: Collection[int] | None, now: float) -> None:
        """The log showed these PIDs on a GPU; None: it says nothing, so all count."""
        for program in self._cast.foreground.get(gpu, ()):
            if seen is None or program.id.pid in seen:
                self._heard[program.id, gpu] = now
        if gpu in self._counts:
            self._counts[gpu] = self._now(gpu, now)

    def _now(self, gpu: str, now: float) -> tuple[Program, ...]:
        present, strangers = self._cast.foreground[gpu], self._cast.strangers
        return tuple(p for p in present if now - self._heard[p.id, gpu] < (SILENT_S if p.id in strangers else IDLE_S))

    def there(self, gpu: str) -> tuple[Program, ...]:
        """All of a GPU's foreground."""
        return self._cast.foreground.get(gpu, ())

    def at(self, gpu: str) -> tuple[Program, ...]:
        """Those of a GPU that count."""
        return self._counts.get(gpu, ())
