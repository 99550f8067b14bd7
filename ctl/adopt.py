# SPDX-License-Identifier: Apache-2.0
"""Adoption: learning a running program's RM objects by asking on its own descriptors.

Three questions of the driver make the scan exact and cheap:
- a client answers only through the file it was made on, so "does this handle exist?" finds a descriptor's clients;
- GET_CHILD_HANDLE names the first device or TSG below an object, whatever handles its library chose;
- GET_HANDLE_INFO gives class and parent of any handle, so the tree is what the driver says, not a guess by position.

Client handles count up over the driver's life and wrap (serverCreateEntryAndLockForNewClient, rs_server.c), so the
search runs downwards from the newest and is time-boxed; it goes on at the next look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from detshare.ctl.rm.abi import Abi
from detshare.ctl.rm.client import RmClient, WrongClient, owned_clients
from detshare.ctl.rm.driver import Descriptor, Driver, Holder, NotAllowed, ProcessGone, ProcessId
from detshare.ctl.snapshot import Tsg
from detshare.ctl.tree import ObjectTree, read_tree

FIRST_BUDGET_S = 0.080
"""client search on the first look at a program"""
LATER_BUDGET_S = 0.030
"""client search on each later look, for all programs that still miss one"""
RESCAN_S = (0.2, 0.8)
"""shortest and longest time between two readings of one program's objects while something changes in the driver"""
SETTLE_S = 3.0
"""a new context is read again at least this long after its first TSG was seen"""
_BATCH = 256


@dataclass(slots=True)
class _Search:
    """Which client handles were tried on one descriptor: the last `span` ones below counter `top`."""

    top: int
    span: int = 0
    found: list[int] = field(default_factory=list)

    def complete(self, limit: int) -> bool:
        return self.span >= limit


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is known of one process. `understood` is False while no client was found or its objects stay unread."""

    tsgs: tuple[Tsg, ...] = ()
    clients: tuple[tuple[int, int], ...] = ()
    """(descriptor, client handle)"""
    mps: bool = False
    """holds an MPS_COMPUTE object: a client of an MPS server"""
    has_device: bool = False
    understood: bool = True
    seconds: float = 0.0
    """how long it took from the first question to the first complete answer with a TSG"""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Known:
    holder: Holder
    searches: dict[int, _Search] = field(default_factory=dict)
    adoption: Adoption = field(default_factory=Adoption)
    read_at: float = float("-inf")
    resources: int = -1
    settled_at: float = float("-inf")
    """until then a context is being made: libcuda still sets things that change no object count"""
    pause_s: float = RESCAN_S[0]
    spent: float = 0.0


class Adopter:
    """Keeps what is known of every holder, and asks again only where something can have changed."""

    def __init__(self, driver: Driver, abi: Abi, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._abi = abi
        self._clock = clock
        self._known: dict[ProcessId, _Known] = {}
        self._base = abi.constant("RS_CLIENT_HANDLE_BASE")
        self._limit = abi.constant("RS_CLIENT_HANDLE_MAX")
        self._newest = -1
        self._newest_at = -1
        self._view: dict[ProcessId, Adoption] = {}

    def forget(self, process: ProcessId) -> None:
        """Read this process anew at the next refresh."""
        self._known.pop(process, None)

    def reread(self, process: ProcessId) -> None:
        """Read this process's objects anew at the next refresh; its clients stay known."""
        if process in self._known:
            self._known[process].read_at = float("-inf")
            self._known[process].resources = -1

    def changed(self, process: ProcessId, slices: Mapping[tuple[int, int], int]) -> None:
        """Take note of slices that were set, (client, TSG) -> microseconds, without reading everything anew."""
        known = self._known.get(process)
        if known is not None:
            tsgs = tuple(
                replace(t, slice_us=slices.get((t.client, t.handle), t.slice_us)) for t in known.adoption.tsgs
            )
            known.adoption = replace(known.adoption, tsgs=tsgs)
            if process in self._view:
                self._view[process] = known.adoption

    def refresh(self, holders: Iterable[Holder], resources: int) -> dict[ProcessId, Adoption]:
        """The adoption of each holder. `resources`: the driver's object count, equal means that nothing changed.

        Programs that end meanwhile are left out; those whose descriptors the kernel refuses are not understood.
        """
        holders = list(holders)
        alive = {holder.id for holder in holders}
        for process in self._known.keys() - alive:
            del self._known[process]
        later_ends = self._clock() + LATER_BUDGET_S
        result = self._view = {}
        for holder in holders:
            known = self._known.get(holder.id)
            first = known is None
            if known is None:
                known = self._known[holder.id] = _Known(holder)
            moved = not first and (holder.control_fds, holder.device_fds) != (
                known.holder.control_fds,
                known.holder.device_fds,
            )
            known.holder = holder
            started = self._clock()
            try:
                if first or moved or self._searching(known) or self._due(known, resources):
                    ends = started + FIRST_BUDGET_S if first else later_ends
                    self._read(known, resources, ends)
            except ProcessGone:
                self._known.pop(holder.id, None)
                continue
            except NotAllowed as error:
                known.adoption = Adoption(understood=False, notes=(str(error),))
                known.read_at = self._clock()
            if not known.adoption.seconds:
                known.spent += self._clock() - started
                if known.adoption.tsgs and known.adoption.understood:
                    known.adoption = replace(known.adoption, seconds=known.spent)
            result[holder.id] = known.adoption
        return result

    def _searching(self, known: _Known) -> bool:
        return any(not s.found and not s.complete(self._limit) for s in known.searches.values())

    def _due(self, known: _Known, resources: int) -> bool:
        now = self._clock()
        busy = resources != known.resources or now < known.settled_at or not known.adoption.understood
        return busy and now - known.read_at >= known.pause_s

    def _top(self, resources: int) -> int:
        """Counter of the newest client, unwrapped; asked once per state of the driver, for each question uses one
        up."""
        if self._newest < 0 or self._newest_at != resources:
            index = self._driver.newest_client() - self._base
            previous = self._newest % self._limit if self._newest >= 0 else index
            step = (index - previous) % self._limit
            self._newest = index if self._newest < 0 else self._newest + step
            # Our own short-lived client changed nothing that counts: the number is the same as before.
            self._newest_at = resources
        return self._newest

    def _read(self, known: _Known, resources: int, ends: float) -> None:
        before = known.adoption
        holder = known.holder
        trees: list[tuple[int, int, ObjectTree]] = []
        notes: list[str] = []
        understood = True
        for gone in known.searches.keys() - set(holder.control_fds):
            del known.searches[gone]
        for fd in holder.control_fds:
            with self._driver.borrow(holder.id, fd) as descriptor:
                search = known.searches.get(fd)
                if search is None:
                    search = known.searches[fd] = _Search(self._top(resources) + 1)
                self._search(descriptor, search, self._top(resources) + 1, ends)
                for handle in tuple(search.found):
                    try:
                        tree = read_tree(RmClient(descriptor, self._abi, handle), self._abi, fd)
                    except WrongClient:
                        search.found.remove(handle)
                        continue
                    trees.append((fd, handle, tree))
                    notes += tree.notes
                    understood = understood and tree.complete
                if not search.found and not search.complete(self._limit):
                    percent = 100 * search.span // self._limit
                    notes.append(f"descriptor {fd}: still looking for its RM client ({percent} % of handles tried)")
        if holder.device_fds and not trees:
            understood = False
            if all(s.complete(self._limit) for s in known.searches.values()):
                notes.append("not understood: none of its nvidiactl descriptors owns an RM client")
        adoption = Adoption(
            tsgs=tuple(tsg for _, _, tree in trees for tsg in tree.tsgs),
            clients=tuple((fd, handle) for fd, handle, _ in trees),
            mps=any(tree.mps for _, _, tree in trees),
            has_device=any(tree.devices for _, _, tree in trees),
            understood=understood,
            seconds=before.seconds,
            notes=tuple(notes),
        )
        changed = (adoption.tsgs, adoption.clients) != (before.tsgs, before.clients)
        known.pause_s = RESCAN_S[0] if changed else min(2 * known.pause_s, RESCAN_S[1])
        if {t.handle for t in adoption.tsgs} - {t.handle for t in before.tsgs}:
            known.settled_at = self._clock() + SETTLE_S
        known.adoption = adoption
        known.resources = resources
        known.read_at = self._clock()

    def _search(self, descriptor: Descriptor, search: _Search, top: int, ends: float) -> None:
        """Try the handles made since the last search, then older ones until `ends`."""
        newer = min(top - search.top, self._limit)
        self._try(descriptor, search, range(top - 1, top - 1 - newer, -1))
        search.top, search.span = top, min(search.span + newer, self._limit)
        while not search.complete(self._limit):
            # Once a descriptor's client is known, older ones are unlikely; they are looked for only just below it.
            if search.found and search.top - search.span < self._counter(min(search.found), search.top) - _BATCH:
                break
            # Below counter 0 lie handles of the round before the counter wrapped.
            highest = search.top - 1 - search.span
            count = min(_BATCH, self._limit - search.span)
            self._try(descriptor, search, range(highest, highest - count, -1))
            search.span += count
            if self._clock() >= ends:
                break

    def _counter(self, handle: int, top: int) -> int:
        """The unwrapped counter of a client handle below `top`."""
        return top - 1 - (top - 1 - (handle - self._base)) % self._limit

    def _try(self, descriptor: Descriptor, search: _Search, counters: range) -> None:
        handles = (self._base + counter % self._limit for counter in counters)
        for handle in owned_clients(descriptor, self._abi, handles):
            if handle not in search.found:
                search.found.append(handle)
