# SPDX-License-Identifier: Apache-2.0
"""Processes, their open files of the driver and the RM objects behind them, kept from a stream of records.

An RM client lives as long as the open file that it was made on, and that as long as some process has a descriptor of
it. Not seen, and so said in `notes`: a file that is only under way in a socket or that io_uring opened or closed; and
objects that RM frees because what they depend on, other than their parent, was freed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from detshare.ctl.core.procfs import NVIDIA_MAJOR
from detshare.ebpf.records import Asked, Decoder, Freed, Kind, Made, Record


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One birth or death. `kind`: process, client or object; `handle` and `number` (class) are 0 for a process.

    Or, where the tracer was asked for it, a `control` that was done on an object: `number` is its command.
    """

    when: int
    born: bool
    kind: str
    pid: int
    client: int = 0
    handle: int = 0
    parent: int = 0
    number: int = 0


@dataclass(slots=True)
class Object:
    """An RM object of a client. `copied`: a duplicate, which names what another handle names too."""

    parent: int
    number: int
    born: int
    copied: bool = False


@dataclass(slots=True)
class Client:
    """An RM client. `whole`: seen from its birth; else it has objects that were made before we looked."""

    handle: int
    pid: int
    fd: int
    file: int
    whole: bool
    objects: dict[int, Object] = field(default_factory=dict)


def still_open(pid: int, fd: int) -> bool:
    """Whether a descriptor of a process is one of the driver's."""
    try:
        status = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == NVIDIA_MAJOR


class World:
    """The state after all records so far."""

    def __init__(self, decoder: Decoder, still_open: Callable[[int, int], bool] = still_open) -> None:
        self._decoder = decoder
        self.memory = decoder.memory
        self._still_open = still_open
        self.clients: dict[int, Client] = {}
        self.processes: dict[int, dict[int, int]] = {}
        """pid -> descriptor -> file; a process stays here until it ends, even without a descriptor"""
        self._holders: dict[int, set[tuple[int, int]]] = {}
        self._born: set[int] = set()
        self.unknown = 0
        """objects that were made in clients of which the birth was not seen"""

    def take(self, record: Record) -> list[ObjectChange]:
        """What a record means, in order."""
        return list(self._take(record))

    def _take(self, record: Record) -> Iterator[ObjectChange]:
        if record.kind is Kind.CALL:
            yield from self._hold(record, record.pid, record.fd, record.file, new=False)
            change = self._decoder.decode(record)
            if isinstance(change, Made):
                yield from self._made(record, change)
            elif isinstance(change, Freed):
                yield from self._freed(record, change)
            elif isinstance(change, Asked):
                asked = (change.client, change.handle, 0, change.number)
                yield ObjectChange(record.when, False, "control", record.pid, *asked)
        elif record.kind is Kind.HOLD:
            yield from self._hold(record, record.pid, record.fd, record.file, new=bool(record.other))
        elif record.kind is Kind.CLOSE:
            yield from self._drop(record.when, record.pid, [record.fd])
        elif record.kind is Kind.CLOSE_RANGE:
            held = self.processes.get(record.pid, {})
            yield from self._drop(record.when, record.pid, [fd for fd in held if record.fd <= fd <= record.other])
        elif record.kind is Kind.FORK:
            for fd, file in list(self.processes.get(record.pid, {}).items()):
                yield from self._hold(record, record.other, fd, file, new=False)
        elif record.kind is Kind.EXEC:
            held = self.processes.get(record.pid, {})
            yield from self._drop(record.when, record.pid, [fd for fd in held if not self._still_open(record.pid, fd)])
        elif record.kind is Kind.EXIT:
            yield from self._drop(record.when, record.pid, list(self.processes.get(record.pid, {})))
            if record.pid in self._born:
                yield ObjectChange(record.when, False, "process", record.pid)
            self._born.discard(record.pid)
            self.processes.pop(record.pid, None)

    def _hold(self, record: Record, pid: int, fd: int, file: int, *, new: bool) -> Iterator[ObjectChange]:
        held = self.processes.setdefault(pid, {})
        before = held.get(fd)
        if before == file and not new:
            return
        if new and file in self._holders:
            # its address was used again, so the earlier one is gone though nobody told us
            for holder, number in self._holders.pop(file):
                self.processes.get(holder, {}).pop(number, None)
            yield from self._bury(record.when, file)
        if before is not None and before != file:
            yield from self._drop(record.when, pid, [fd])
        held[fd] = file
        self._holders.setdefault(file, set()).add((pid, fd))
        if pid not in self._born:
            self._born.add(pid)
            yield ObjectChange(record.when, True, "process", pid)

    def _drop(self, when: int, pid: int, fds: list[int]) -> Iterator[ObjectChange]:
        held = self.processes.get(pid, {})
        for fd in fds:
            file = held.pop(fd, None)
            if file is None:
                continue
            holders = self._holders.get(file, set())
            holders.discard((pid, fd))
            if not holders:
                self._holders.pop(file, None)
                yield from self._bury(when, file)

    def _bury(self, when: int, file: int) -> Iterator[ObjectChange]:
        for client in [each for each in self.clients.values() if each.file == file]:
            yield from self._end_client(when, client)

    def _end_client(self, when: int, client: Client) -> Iterator[ObjectChange]:
        for handle, each in reversed(list(client.objects.items())):
            yield ObjectChange(when, False, "object", client.pid, client.handle, handle, each.parent, each.number)
        del self.clients[client.handle]
        yield ObjectChange(when, False, "client", client.pid, client.handle, client.handle)

    def _made(self, record: Record, made: Made) -> Iterator[ObjectChange]:
        client = self.clients.get(made.client)
        if made.number in self._decoder.roots and made.source is None:
            if client is not None:  # the number was used again: its death was not seen
                yield from self._end_client(record.when, client)
            self.clients[made.handle] = Client(made.handle, record.pid, record.fd, record.file, whole=True)
            yield ObjectChange(record.when, True, "client", record.pid, made.handle, made.handle, 0, made.number)
            return
        if client is None:
            client = self.clients[made.client] = Client(made.client, record.pid, record.fd, record.file, whole=False)
        self.unknown += not client.whole
        number = made.number
        if made.source is not None:
            origin = self.clients.get(made.source[0])
            source = origin.objects.get(made.source[1]) if origin is not None else None
            number = source.number if source is not None else 0
        client.objects[made.handle] = Object(made.parent, number, record.when, made.source is not None)
        yield ObjectChange(record.when, True, "object", client.pid, client.handle, made.handle, made.parent, number)

    def _freed(self, record: Record, freed: Freed) -> Iterator[ObjectChange]:
        client = self.clients.get(freed.client)
        if client is None:
            return
        if freed.handle == freed.client:
            yield from self._end_client(record.when, client)
            return
        below = self._below(client, freed.handle)
        for handle in reversed(below):
            each, about = client.objects.pop(handle), (client.pid, client.handle, handle)
            yield ObjectChange(record.when, False, "object", *about, each.parent, each.number)

    @staticmethod
    def _below(client: Client, handle: int) -> list[int]:
        """That object and all under it, parents first."""
        if handle not in client.objects:
            return []
        children: dict[int, list[int]] = {}
        for each, found in client.objects.items():
            children.setdefault(found.parent, []).append(each)
        order, position = [handle], 0
        while position < len(order):
            order += [each for each in children.get(order[position], ()) if each not in order[: position + 1]]
            position += 1
        return order

    def notes(self) -> list[str]:
        """Why the view is partial; empty when it is whole."""
        old = sum(not client.whole for client in self.clients.values())
        return [f"{old} client(s) began before this trace: their older objects are not known"] if old else []
