# SPDX-License-Identifier: Apache-2.0
"""One program in the driver's checkpoint, as the daemon and its journal keep it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Program, State
from detshare.ctl.core.work import Parking

__all__ = ["Entry", "from_json", "notes", "program_of", "to_json"]


@dataclass(slots=True)
class Entry:
    """One program that was asked for. Bytes and milliseconds."""

    id: ProcessId
    command: str
    user: str
    container: str
    gpus: tuple[str, ...]
    klass: str | None
    size: int
    state: str = "home"
    """as work.Parking has it"""
    parks: int = 0
    park_ms: float = 0.0
    resume_ms: float = 0.0
    note: str = ""
    """what stopped the last job"""
    deep: bool = False
    """its library had parked it: this is the rest"""
    to: str = ""
    """the GPU that it is being moved to"""

    @property
    def away(self) -> bool:
        """Whether it is not simply running."""
        return self.state != "home"

    def parking(self) -> Parking:
        """As others see it."""
        away = self.size if self.state == "parked" else 0
        return Parking(
            state=self.state,
            parkable_bytes=self.size,
            parked_bytes=away,
            stays_bytes=0,
            arena_bytes=0,
            parks=self.parks,
            park_ms=self.park_ms,
            resume_ms=self.resume_ms,
            way="driver",
        )


def to_json(entry: Entry) -> dict[str, Any]:
    """As the journal has it."""
    return asdict(entry) | {"id": list(entry.id), "gpus": list(entry.gpus)}


def from_json(data: dict[str, Any]) -> Entry:
    """ValueError, TypeError, KeyError, AttributeError where it is none."""
    pid, start = data["id"]
    return Entry(**data | {"id": ProcessId(int(pid), int(start)), "gpus": tuple(map(str, data["gpus"]))})


def notes(program: Program, entry: Entry) -> tuple[str, ...]:
    """What is noted of a program that a look finds."""
    return (*program.notes, f"park: {entry.note}") if entry.note else program.notes


def program_of(entry: Entry) -> Program:
    """One that no look finds."""
    waits = f"its calls of CUDA wait until detshare-ctl resume {entry.id.pid}"
    until = "its next call brings it back" if entry.deep else waits
    note = f"in the driver's checkpoint: {until}"
    return Program(
        id=entry.id,
        command=entry.command,
        user=entry.user,
        container=entry.container,
        state=State.PARKED,
        gpus=entry.gpus,
        klass=entry.klass,
        notes=(note, f"park: {entry.note}") if entry.note else (note,),
        parking=entry.parking(),
    )
