# SPDX-License-Identifier: Apache-2.0
"""Adoption: learning a running program's RM objects by asking on its own descriptors.

Three questions of the driver make the scan exact and cheap:
- a client answers only through the file it was made on, so "does this handle exist?" finds a descriptor's clients
  (Descriptor.owns: the driver logs no answer to it, as it does where a control names no client);
- GET_CHILD_HANDLE names the first device or TSG below an object, whatever handles its library chose;
- GET_HANDLE_INFO gives class and parent of any handle, so the tree is what the driver says, not a guess by position.

Client handles count up over the driver's life and wrap (serverCreateEntryAndLockForNewClient, rs_server.c), so the
search runs downwards from the newest and is time-boxed; it goes on at the next look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.root.tree import DEEP_GAP, GAP, Depth, ObjectTree, Piece, read_tree
from detshare.ctl.core.driver import (
    Counts,
    Descriptor,
    DescriptorGone,
    Driver,
    DriverError,
    Opener,
    ProcessGone,
    ProcessId,
)
from detshare.ctl.core.snapshot import Kind, Tsg
from detshare.ctl.rm.client import RmClient, RmError, WrongClient

FIRST_BUDGET_S = 0.080
"""client search on the first look at a program"""
LATER_BUDGET_S = 0.030
"""client search on each later look, for all programs that still miss one"""
REREAD_BUDGET_S = 0.100
"""re-reading known programs, on one look; the rest has its turn on the next"""
RESCAN_S = (0.2, 10.0)
"""shortest and longest time between two readings of one program's objects while something changes in the driver; it
doubles while the readings find nothing new. A TSG comes with memory that is mapped on a descriptor of its own, which
stays open (both recordings of an H100, tests/data/traces), and who has other descriptors is read at once"""
FRESH_S = 0.8
"""the longest, where a person or a policy asks"""
COST_FACTOR = 10
"""a program is read again after this many times what the last reading took, if that is later"""
STALE_S = 10.0
"""a program is read again after this long even if the driver's object count stands still"""
STALE_FACTOR = 1000
"""or after this many times what the last reading took, if that is later; where the corners were looked into since the
count changed, what that of all programs took, up to MOST_STALE_S"""
MOST_STALE_S = 120.0
CHECK_S = 1.0
"""slices and numbers of known compute TSGs are asked this often: a program may set them, or swap its TSG"""
SETTLE_S = 3.0
"""a new context is read again at least this long after its first TSG was seen"""
_BATCH = 256
_ANNOUNCED = 4096


@dataclass(slots=True)
class _Search:
    """Which client handles were tried on one descriptor: the last `span` ones below counter `top`."""

    top: int
    span: int = 0
    found: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is known of one process. `understood` is False while no client was found or its objects stay unread."""

    tsgs: tuple[Tsg, ...] = ()
    clients: tuple[tuple[int, int], ...] = ()
    """(descriptor, client handle)"""
    mps: bool = False
    """holds an MPS_COMPUTE object: a client of an MPS server"""
    understood: bool = True
    reached: tuple[Piece, ...] = ()
    """memory of a program that reaches from GPU to GPU"""
    seconds: float = 0.0
    """how long it took to find its clients and to read them, the first time that this gave a whole context"""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Known:
    opener: Opener
    searches: dict[int, _Search] = field(default_factory=dict)
    adoption: Adoption = field(default_factory=Adoption)
    read_at: float = float("-inf")
    checked_at: float = float("-inf")
    clients: int = -1
    objects: int = -1
    """the driver's counts when its clients were looked for, and when it was read"""
    deep_objects: int = -1
    """the driver's count of objects at the last reading past long gaps"""
    settled_at: float = float("-inf")
    """until then a context is being made: libcuda still sets things that change no object count"""
    pause_s: float = RESCAN_S[0]
    searched: float = 0.0
    """seconds spent looking for its clients"""
    cost_s: float = 0.0
    """of its last reading"""
    deep: bool = False
    """the next reading goes past long gaps between handles"""


class Adopter:
    """Keeps what is known of every opener, and asks again only where something can have changed.

    One odd program never stops the others: what it raises becomes a remark on it.
    """

    def __init__(self, driver: Driver, abi: Abi, clock: Callable[[], float] = time.monotonic) -> None:
        self.abi = abi
        self.makers: dict[int, int] = {}
        """client -> PID of who was seen making it; perhaps of clients that are no more"""
        self._driver = driver
        self._abi = abi
        self._clock = clock
        self._known: dict[ProcessId, _Known] = {}
        self._stale_s = STALE_S
        self._base = abi.constant("RS_CLIENT_HANDLE_BASE")
        self._limit = abi.constant("RS_CLIENT_HANDLE_MAX")
        self._newest = -1
        self._newest_at = -1
        """the driver's count of clients when it was asked"""
        self._announced: dict[int, dict[tuple[int, int], bool]] = {}

    def announce(self, pid: int, fd: int, client: int, *, whole: bool) -> None:
        """Somebody saw that client get objects on that descriptor: it need not be searched for, and its process is read
        at the next refresh. `whole`: all clients of the descriptor are announced."""
        self._announced.setdefault(pid, {})[fd, client] = whole
        if whole:
            self.makers[client] = pid

    def reread(self, process: ProcessId) -> None:
        """Read this process's objects anew at the next refresh; its clients stay known."""
        if process in self._known:
            self._known[process].read_at = float("-inf")
            self._known[process].objects = -1

    def deepen(self, process: ProcessId) -> None:
        """Read this process anew at the next refresh, and past long gaps between its handles."""
        if process in self._known:
            self._known[process].deep = True
            self.reread(process)

    def changed(self, process: ProcessId, slices: Mapping[tuple[int, int], int]) -> Adoption | None:
        """Take note of slices that were set, (client, TSG) -> microseconds, without reading everything anew. The very
        adoption as before where they are none but the known ones."""
        known = self._known.get(process)
        if known is None:
            return None
        if all(slices.get((t.client, t.handle), t.slice_us) == t.slice_us for t in known.adoption.tsgs):
            return known.adoption
        tsgs = tuple(replace(t, slice_us=slices.get((t.client, t.handle), t.slice_us)) for t in known.adoption.tsgs)
        known.adoption = replace(known.adoption, tsgs=tsgs)
        return known.adoption

    def refresh(
        self, openers: Iterable[Opener], counts: Counts, *, fresh: bool = False
    ) -> dict[ProcessId, Adoption]:
        """The adoption of each opener. `counts`: the driver's; equal ones mean that nothing changed. `fresh`: somebody
        asks, so what may have changed is read sooner.

        Programs that end meanwhile are left out; those that cannot be read keep what was known, with a remark.
        """
        openers = list(openers)
        for process in self._known.keys() - {opener.id for opener in openers}:
            del self._known[process]
        if len(self._announced) > _ANNOUNCED:
            self._announced.clear()  # of programs that ended before a look saw them
        if len(self.makers) > _ANNOUNCED:
            self.makers.clear()  # the driver can be asked
        if any(h.id not in self._known or h.control_fds != self._known[h.id].opener.control_fds for h in openers):
            self._newest_at = -1  # a newcomer may hold as many objects as one that ended: its clients are newer still
        now = self._clock()
        all_cost_s = sum(known.cost_s for known in self._known.values())
        self._stale_s = max(STALE_S, min(MOST_STALE_S, STALE_FACTOR * all_cost_s))
        search_ends, reread_ends = now + LATER_BUDGET_S, now + REREAD_BUDGET_S
        # Longest unread first, so that the budget goes round.
        for opener in sorted(openers, key=lambda h: self._known[h.id].read_at if h.id in self._known else now):
            known = self._known.get(opener.id)
            first = known is None
            if known is None:
                known = self._known[opener.id] = _Known(opener)
            before = known.opener
            moved = (opener.control_fds, opener.device_fds) != (before.control_fds, before.device_fds)
            known.opener = opener
            announced = self._announced.pop(opener.id.pid, {})
            try:
                for (fd, client), whole in announced.items():
                    self._believe(known, counts, fd, client, whole)
                self._visit(known, counts, first, moved, fresh, search_ends, reread_ends)
            except ProcessGone:
                del self._known[opener.id]
            except (RmError, DriverError, OSError) as error:
                self._set_aside(known, counts, error)
        return {h.id: self._known[h.id].adoption for h in openers if h.id in self._known}

    def settled(self, counts: Counts) -> bool:
        """Whether every program was read whole, and none is to be read again now."""
        now = self._clock()
        return all(
            k.adoption.understood
            and now >= k.settled_at
            and (k.objects == counts.objects or now - k.read_at < k.pause_s)
            and not self._searching(k)
            for k in self._known.values()
        )

    def _visit(
        self,
        known: _Known,
        counts: Counts,
        first: bool,
        moved: bool,
        fresh: bool,
        search_ends: float,
        reread_ends: float,
    ) -> None:
        started = self._clock()
        ends = started + FIRST_BUDGET_S if first else search_ends
        found = False
        if first or moved or self._searching(known) or counts.clients != known.clients:
            found = self._find_clients(known, counts, ends)
            known.clients = counts.clients
            known.searched += self._clock() - started
        if first or moved or found or (self._due(known, counts, fresh) and started < reread_ends):
            self._read(known, counts)
        elif known.adoption.tsgs and started - known.checked_at >= CHECK_S:
            self._check(known)

    def _believe(self, known: _Known, counts: Counts, fd: int, client: int, whole: bool) -> None:
        """Take a client as found that was announced; reading it asks the driver, so a wrong one is dropped there."""
        if fd not in known.opener.control_fds:
            return
        search = known.searches.setdefault(fd, _Search(self._top(counts) + 1))
        if client not in search.found:
            search.found.append(client)
        if whole:
            search.span = self._limit
        known.read_at, known.objects = float("-inf"), -1

    def _set_aside(self, known: _Known, counts: Counts, error: Exception) -> None:
        """Keep what was known of a program that cannot be read now, and leave it alone for a while."""
        note = f"not read: {error}"
        known.adoption = replace(known.adoption, understood=False, notes=(note,))
        known.pause_s = min(max(2 * known.pause_s, RESCAN_S[0]), STALE_S)
        known.read_at, known.objects = self._clock(), counts.objects

    def _searching(self, known: _Known) -> bool:
        fds = set(known.opener.control_fds)
        return fds != known.searches.keys() or any(self._incomplete(s) for s in known.searches.values())

    def _incomplete(self, search: _Search) -> bool:
        if search.found:
            # Older clients of a descriptor that has one: only those of this round of the counter are looked for.
            return search.span < min(search.top, self._limit)
        return search.span < self._limit

    def _due(self, known: _Known, counts: Counts, fresh: bool) -> bool:
        now = self._clock()
        busy = counts.objects != known.objects or now < known.settled_at or not known.adoption.understood
        stale_s = self._stale_s if known.deep_objects == counts.objects else STALE_S
        if not busy and now - known.read_at >= max(stale_s, STALE_FACTOR * known.cost_s):
            known.deep = True  # nothing presses: look into the corners too
            return True
        asked = min(known.pause_s, max(FRESH_S, COST_FACTOR * known.cost_s))
        return busy and now - known.read_at >= (asked if fresh else known.pause_s)

    def _top(self, counts: Counts) -> int:
        """Counter of the newest client, unwrapped; asked once per state of the driver, as each question uses one."""
        if self._newest < 0 or self._newest_at != counts.clients:
            index = self._driver.newest_client() - self._base
            previous = self._newest % self._limit if self._newest >= 0 else index
            self._newest = index if self._newest < 0 else self._newest + (index - previous) % self._limit
            # Our own short-lived client changed nothing that counts: the number is the same as before.
            self._newest_at = counts.clients
        return self._newest

    def _find_clients(self, known: _Known, counts: Counts, ends: float) -> bool:
        """Look for RM clients on each descriptor. True if one was found."""
        top = self._top(counts) + 1
        found = False
        for gone in known.searches.keys() - set(known.opener.control_fds):
            del known.searches[gone]
        for fd in known.opener.control_fds:
            search = known.searches.get(fd)
            if search is None:
                search = known.searches[fd] = _Search(top)
            if search.span and search.top == top and not self._incomplete(search):
                continue
            before = len(search.found)
            try:
                with self._driver.borrow(known.opener.id, fd) as descriptor:
                    self._search(descriptor, search, top, ends)
            except DescriptorGone:
                del known.searches[fd]
            found = found or len(search.found) > before
        return found

    def _search(self, descriptor: Descriptor, search: _Search, top: int, ends: float) -> None:
        """Try the handles made since the last search, then older ones until `ends`."""
        newer = min(top - search.top, self._limit)
        self._try(descriptor, search, range(top - 1, top - 1 - newer, -1))
        search.top, search.span = top, min(search.span + newer, self._limit)
        while self._incomplete(search):
            # Below counter 0 lie handles of the round before the counter wrapped.
            highest = search.top - 1 - search.span
            count = min(_BATCH, self._limit - search.span)
            self._try(descriptor, search, range(highest, highest - count, -1))
            search.span += count
            if self._clock() >= ends:
                break

    def _try(self, descriptor: Descriptor, search: _Search, counters: range) -> None:
        handles = (self._base + counter % self._limit for counter in counters)
        for handle in filter(descriptor.owns, handles):
            if handle not in search.found:
                search.found.append(handle)

    def _read(self, known: _Known, counts: Counts) -> None:
        """Read every object anew."""
        started = self._clock()
        before, opener = known.adoption, known.opener
        trees: list[tuple[int, int, ObjectTree]] = []
        notes: list[str] = []
        for fd, search in list(known.searches.items()):
            try:
                with self._driver.borrow(opener.id, fd) as descriptor:
                    for handle in tuple(search.found):
                        seen = max((t.handle for t in before.tsgs if t.client == handle), default=0)
                        depth = Depth(DEEP_GAP if known.deep else GAP, seen)
                        try:
                            tree = read_tree(RmClient(descriptor, self._abi, handle), self._abi, fd, depth)
                        except WrongClient:
                            search.found.remove(handle)
                            continue
                        trees.append((fd, handle, tree))
                        notes += tree.notes
            except DescriptorGone:
                del known.searches[fd]
        for fd, search in known.searches.items():
            if not search.found and self._incomplete(search):
                percent = 100 * search.span // self._limit
                notes.append(f"descriptor {fd}: still looking for its RM client ({percent} % of handles tried)")
        understood = all(tree.complete for _, _, tree in trees)
        if opener.device_fds and not trees:
            understood = False
            if not any(self._incomplete(s) for s in known.searches.values()):
                notes.append("none of its nvidiactl descriptors owns an RM client")
        known.adoption = Adoption(
            tsgs=tuple(tsg for _, _, tree in trees for tsg in tree.tsgs),
            clients=tuple((fd, handle) for fd, handle, _ in trees),
            mps=any(tree.mps for _, _, tree in trees),
            reached=tuple(piece for _, _, tree in trees for piece in tree.reached),
            understood=understood,
            seconds=before.seconds,
            notes=tuple(notes),
        )
        now = self._clock()
        if not before.seconds and known.adoption.tsgs and understood:
            # Looks at a program that has no context yet, or is just making it, adopt nothing and do not count.
            known.adoption = replace(known.adoption, seconds=known.searched + now - started)
        if trees and not known.adoption.tsgs:
            known.searched = 0.0
        known.deep_objects, known.deep = counts.objects if known.deep else known.deep_objects, False
        names = {(t.client, t.handle, t.tsg_id) for t in before.tsgs}
        if {(t.client, t.handle, t.tsg_id) for t in known.adoption.tsgs} - names:
            known.settled_at = now + SETTLE_S
        changed = (known.adoption.tsgs, known.adoption.clients) != (before.tsgs, before.clients)
        known.pause_s = RESCAN_S[0] if changed else min(2 * known.pause_s, RESCAN_S[1])
        known.cost_s = now - started
        known.pause_s = max(known.pause_s, COST_FACTOR * known.cost_s)
        known.objects, known.read_at, known.checked_at = counts.objects, now, now

    def _check(self, known: _Known) -> None:
        """Ask known compute TSGs for their slice and number; a TSG that is another one now means reading anew."""
        known.checked_at = self._clock()
        slices: dict[tuple[int, int], int] = {}
        tsgs = [t for t in known.adoption.tsgs if t.kind is Kind.COMPUTE]
        try:
            for fd in dict.fromkeys(t.fd for t in tsgs):
                with self._driver.borrow(known.opener.id, fd) as descriptor:
                    for tsg in (t for t in tsgs if t.fd == fd):
                        client = RmClient(descriptor, self._abi, tsg.client)
                        if client.tsg_id(tsg.handle) != tsg.tsg_id:
                            self.reread(known.opener.id)
                        slices[tsg.client, tsg.handle] = client.timeslice(tsg.handle)
        except (RmError, DescriptorGone):
            self.reread(known.opener.id)
        self.changed(known.opener.id, slices)
