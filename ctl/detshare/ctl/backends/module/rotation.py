# SPDX-License-Identifier: Apache-2.0
"""The kernel's turns as the kernel tells them: who has one on each GPU, and who waits."""

from __future__ import annotations

from typing import Final

from detshare.ctl.backends.module.census import Census
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.gputime import Mode, Pattern, Place, Schedule, Standing
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.records import EntityRow, GpuRow

_MODES: Final = {genl.DETSHARE_TURN_MODE_TURNS: Mode.TURNS, genl.DETSHARE_TURN_MODE_WINDOWS: Mode.WINDOWS}


def schedules(seen: Census) -> tuple[Schedule, ...]:
    """The rotation of each GPU that has one. The kernel does not tell how the foreground comes."""
    return tuple(
        Schedule(
            seen.uuid(row.gpu),
            mode,
            Pattern.UNKNOWN,
            holder=str(row.turn_pid) if row.turn_pid else "",
            left_s=row.turn_left_ms / 1000 if row.turn_pid else None,
        )
        for row in seen.gpu_rows
        if (mode := _MODES.get(row.turn_mode)) is not None
    )


def places(seen: Census, process: ProcessId) -> tuple[Place, ...]:
    """A program's place in the rotation of each GPU on which it has turns."""
    rotating = {row.gpu: row for row in seen.gpu_rows if row.turn_mode in _MODES}
    turning = {row.name for row in seen.classes if row.turn_us}
    mine: dict[int, list[EntityRow]] = {}
    for entity in seen.entities:
        if entity.pid == process.pid and entity.klass in turning and entity.gpu in rotating:
            mine.setdefault(entity.gpu, []).append(entity)
    return tuple(
        Place(seen.uuid(gpu), str(process.pid), _standing(rotating[gpu], process.pid, entities))
        for gpu, entities in sorted(mine.items())
    )


def waiting(seen: Census) -> frozenset[int]:
    """PIDs that have work and are off the run list until their turn."""
    return frozenset(entity.pid for entity in seen.entities if entity.reasons & genl.DETSHARE_HOLD_TURN)


def _standing(row: GpuRow, pid: int, entities: list[EntityRow]) -> Standing:
    if row.turn_pid == pid:
        return Standing.WINDOW if _MODES[row.turn_mode] is Mode.WINDOWS else Standing.HOLDS
    held = any(entity.reasons & genl.DETSHARE_HOLD_TURN for entity in entities)
    return Standing.WAITS if held else Standing.RESTS
