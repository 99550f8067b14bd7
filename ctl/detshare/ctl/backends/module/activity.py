# SPDX-License-Identifier: Apache-2.0
"""What the kernel module knows of each program's launches: from its rows to one Activity for each process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.work import Activity, Denial
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.records import DENIALS, ENTITY_STATES, DeniedRow, EntityRow, reasons

_UVM = 0x30000000  # kmod/client/denials.h: an ioctl of nvidia-uvm
_ESCAPES = 0x100


def command_name(command: int, abi: Abi | None) -> str:
    """A command of a denial in words."""
    if command >= _UVM and command < _UVM + _ESCAPES:
        return f"UVM ioctl {command - _UVM}"
    if command < _ESCAPES:
        return f"escape {command:#x}"
    known = abi.controls.items() if abi is not None else ()
    return next((name for name, control in known if control.number == command), f"control {command:#x}")


def denials(rows: Iterable[DeniedRow], abi: Abi | None) -> tuple[Denial, ...]:
    """Denials of one process, the same of several contexts added up, most frequent first."""
    sums: dict[tuple[int, int, int], int] = defaultdict(int)
    for row in rows:
        sums[row.command, row.reason, row.status] += row.count
    found = [
        Denial(command, command_name(command, abi), DENIALS.get(reason, str(reason)), status, count)
        for (command, reason, status), count in sums.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.count, each.command)))


def of_process(
    entities: Sequence[EntityRow], denied: Iterable[DeniedRow] = (), abi: Abi | None = None
) -> Activity | None:
    """One process's entities as one: what holds any of them holds the process. None where it has none."""
    if not entities:
        return None
    state = max(entity.state for entity in entities)
    held = 0
    for entity in entities:
        held |= entity.reasons
    told = denials(denied, abi)
    return Activity(
        state=ENTITY_STATES.get(state, str(state)),
        reasons=reasons(held),
        used_us=sum(entity.used_us for entity in entities),
        idle_ms=min(entity.idle_ns for entity in entities) / 1e6,
        kicks=sum(entity.kicks for entity in entities),
        faults=sum(entity.faults for entity in entities),
        waits=sum(entity.waits for entity in entities),
        wait_ms=sum(entity.wait_ns for entity in entities) / 1e6,
        waiting=sum(entity.waiting for entity in entities),
        doors=sum(entity.doors for entity in entities),
        doors_unknown=sum(entity.doors_unknown for entity in entities),
        channels_off=sum(entity.channels_off for entity in entities),
        ceiling=min((entity.tpc_percent for entity in entities if entity.tpc_percent), default=None),
        denied=max(sum(entity.denied for entity in entities), sum(each.count for each in told)),
        denials=told,
    )


def by_pid(rows: Iterable[EntityRow]) -> Mapping[int, list[EntityRow]]:
    """Runs of each process."""
    found: dict[int, list[EntityRow]] = defaultdict(list)
    for row in rows:
        found[row.pid].append(row)
    return found


def holds(row: EntityRow) -> bool:
    """Whether a run cannot launch now."""
    return row.state in (genl.DETSHARE_ENTITY_STATE_GATED, genl.DETSHARE_ENTITY_STATE_PAUSED)
