# SPDX-License-Identifier: Apache-2.0
"""What the kernel module knows of each program's launches: from its rows to one Activity for each process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.work import Activity, Denial
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.records import DENIALS, RUN_STATES, DeniedRow, RunRow, reasons

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


def of_process(runs: Sequence[RunRow], denied: Iterable[DeniedRow] = (), abi: Abi | None = None) -> Activity | None:
    """One process's runs as one: what holds any of them holds the process. None where it has none."""
    if not runs:
        return None
    state = max(run.state for run in runs)
    held = 0
    for run in runs:
        held |= run.reasons
    told = denials(denied, abi)
    return Activity(
        state=RUN_STATES.get(state, str(state)),
        reasons=reasons(held),
        used_us=sum(run.used_us for run in runs),
        idle_ms=min(run.idle_ns for run in runs) / 1e6,
        kicks=sum(run.kicks for run in runs),
        faults=sum(run.faults for run in runs),
        waits=sum(run.waits for run in runs),
        wait_ms=sum(run.wait_ns for run in runs) / 1e6,
        waiting=sum(run.waiting for run in runs),
        doors=sum(run.doors for run in runs),
        doors_unknown=sum(run.doors_unknown for run in runs),
        channels_off=sum(run.channels_off for run in runs),
        ceiling=min((run.tpc_percent for run in runs if run.tpc_percent), default=None),
        denied=max(sum(run.denied for run in runs), sum(each.count for each in told)),
        denials=told,
    )


def by_pid(rows: Iterable[RunRow]) -> Mapping[int, list[RunRow]]:
    """Runs of each process."""
    found: dict[int, list[RunRow]] = defaultdict(list)
    for row in rows:
        found[row.pid].append(row)
    return found


def holds(row: RunRow) -> bool:
    """Whether a run cannot launch now."""
    return row.state in (genl.DETSHARE_RUN_STATE_GATED, genl.DETSHARE_RUN_STATE_PAUSED)
