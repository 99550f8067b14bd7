# SPDX-License-Identifier: Apache-2.0
"""Putting programs back as they were found, from the journal: each fact for itself, none stops the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.root.journal import Before, Journal, Paused
from detshare.ctl.core.driver import DescriptorGone, Driver, DriverError, ProcessGone, ProcessId
from detshare.ctl.core.snapshot import Level
from detshare.ctl.rm.client import RmClient, RmError, WrongClient, channel_classes


class Gone(Exception):
    """What a fact is about does not exist any more: nothing is left to put back."""


def still_there(client: RmClient, abi: Abi, tsg: int, tsg_id: int) -> bool:
    """Whether a handle still names the TSG that we know: handles and numbers are used again after a free."""
    for handle, klass in client.existing([tsg]):
        if handle == tsg and klass == abi.klass("KEPLER_CHANNEL_GROUP_A"):
            return client.tsg_id(tsg) == tsg_id
    return False


def _places(driver: Driver, fact: Before | Paused) -> Iterator[tuple[ProcessId, int]]:
    yield fact.process, fact.fd
    yield from ((h.id, fact.fd) for h in driver.openers() if h.id != fact.process and fact.fd in h.control_fds)


@contextmanager
def reach(driver: Driver, abi: Abi, fact: Before | Paused) -> Iterator[RmClient]:
    """The client that a fact is about, through its process or, after that died or closed it, through a forked child's
    descriptor.

    Gone where nobody reaches it: then the driver has freed it.
    """
    for process, fd in _places(driver, fact):
        try:
            with driver.borrow(process, fd) as descriptor:
                if descriptor.owns(fact.client):
                    yield RmClient(descriptor, abi, fact.client)
                    return
        except (ProcessGone, DescriptorGone):
            continue
    raise Gone


def resume(driver: Driver, abi: Abi, paused: Paused) -> None:
    """Switch channels on again; those that were freed meanwhile, or whose handle is another object now, are left out.

    RmError where the driver refuses one that exists.
    """
    try:
        with reach(driver, abi, paused) as client:
            channels = channel_classes(abi)
            alive = [handle for handle, klass in client.existing(paused.channels) if klass in channels]
            try:
                if alive:
                    client.switch_channels(paused.subdevice, alive, run=True)
            except RmError:
                _one_by_one(client, paused.subdevice, alive, abi)
    except (Gone, WrongClient):
        return


def _one_by_one(client: RmClient, subdevice: int, channels: list[int], abi: Abi) -> None:
    """One refused channel refuses its whole list: find those that can run."""
    refused: RmError | None = None
    for channel in channels:
        try:
            client.switch_channels(subdevice, [channel], run=True)
        except RmError as error:
            if any(client.existing([channel])):
                refused = error
    if refused is not None:
        raise refused


def restore(driver: Driver, abi: Abi, before: Before) -> None:
    """Give a TSG the slice and level it had; nothing where it is gone. RmError where the driver refuses."""
    try:
        with reach(driver, abi, before) as client:
            if still_there(client, abi, before.tsg, before.tsg_id):
                client.set_timeslice(before.tsg, before.slice_us)
                client.set_level(before.tsg, Level.MEDIUM)
    except (Gone, WrongClient):
        return


def undo_process(driver: Driver, abi: Abi, journal: Journal, process: ProcessId) -> list[str]:
    """Resume and restore one process. Returns what could not be done; those facts stay in the journal."""
    problems: list[str] = []

    def note(error: Exception) -> None:
        problems.append(f"PID {process.pid}: {error}")

    for paused in (*journal.paused.get(process, ()), *journal.turned.get(process, ())):
        try:
            resume(driver, abi, paused)
        except (RmError, DriverError, OSError) as error:
            note(error)
    for before in [b for key, b in journal.slices.items() if key[0] == process]:
        try:
            restore(driver, abi, before)
        except (RmError, DriverError, OSError) as error:
            note(error)
    if not problems:
        try:
            journal.forget(process)
        except OSError as error:  # it is put back; doing so again later does no harm
            journal.unpause(process)
            note(error)
    return problems


def undo_all(driver: Driver, abi: Abi, journal: Journal) -> list[str]:
    """Put every process back, paused ones first. Returns what could not be done."""
    problems: list[str] = []
    for process in journal.processes():
        problems += undo_process(driver, abi, journal, process)
    if not journal.processes():
        try:
            journal.clear()
        except OSError as error:
            problems.append(str(error))
    return problems
