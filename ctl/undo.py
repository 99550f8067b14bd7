# SPDX-License-Identifier: Apache-2.0
"""Putting programs back as they were found, from the journal."""

from __future__ import annotations

from detshare.ctl.journal import Before, Journal, Paused
from detshare.ctl.rm.abi import Abi
from detshare.ctl.rm.client import RmClient, RmError
from detshare.ctl.rm.driver import Driver, DriverError, ProcessGone, ProcessId
from detshare.ctl.snapshot import Level


def still_there(client: RmClient, abi: Abi, tsg: int, tsg_id: int) -> bool:
    """Whether a handle still names the TSG that we know: handles and numbers are used again after a free."""
    for handle, klass in client.existing([tsg]):
        if handle == tsg and klass == abi.klass("KEPLER_CHANNEL_GROUP_A"):
            return client.tsg_id(tsg) == tsg_id
    return False


def resume(driver: Driver, abi: Abi, paused: Paused) -> None:
    """Switch channels on again; those that were freed meanwhile are left out."""
    with driver.borrow(paused.process, paused.fd) as descriptor:
        client = RmClient(descriptor, abi, paused.client)
        alive = [handle for handle, _ in client.existing(paused.channels)]
        if alive:
            client.switch_channels(paused.subdevice, alive, run=True)


def restore(driver: Driver, abi: Abi, before: Before) -> bool:
    """Give a TSG the slice and level it had. False where that TSG is gone."""
    with driver.borrow(before.process, before.fd) as descriptor:
        client = RmClient(descriptor, abi, before.client)
        if not still_there(client, abi, before.tsg, before.tsg_id):
            return False
        client.set_timeslice(before.tsg, before.slice_us)
        client.set_level(before.tsg, Level.MEDIUM)
        return True


def undo_process(driver: Driver, abi: Abi, journal: Journal, process: ProcessId) -> list[str]:
    """Resume and restore one process. Returns what could not be done; then its facts stay in the journal."""
    problems: list[str] = []
    try:
        for paused in journal.paused.get(process, ()):
            try:
                resume(driver, abi, paused)
            except RmError as error:
                problems.append(f"PID {process.pid}: {error}")
        if not problems:
            journal.unpause(process)
        for before in [b for key, b in journal.slices.items() if key[0] == process]:
            try:
                restore(driver, abi, before)
            except RmError as error:
                problems.append(f"PID {process.pid}: {error}")
    except ProcessGone:
        problems.clear()  # nothing is left to put back
    except (DriverError, OSError) as error:
        problems.append(f"PID {process.pid}: {error}")
    if not problems:
        journal.forget(process)
    return problems


def undo_all(driver: Driver, abi: Abi, journal: Journal) -> list[str]:
    """Put every process back, paused ones first. Returns what could not be done."""
    problems: list[str] = []
    for process in journal.processes():
        problems += undo_process(driver, abi, journal, process)
    if not problems:
        journal.clear()
    return problems
