# SPDX-License-Identifier: Apache-2.0
"""Programs whose GPU memory leaves and comes back: who is asked for it, and what came of that.

The library in the program does it. The daemon writes the request into the policy page, and reads from the counters
where the memory is. A program that is parked goes on by itself when it launches, whether there is a daemon or not.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core import sizes
from detshare.ctl.core.driver import ProcessId
from detshare.runtime import board_layout as layout
from detshare.runtime.arena import Arena
from detshare.runtime.board import monotonic_ns
from detshare.runtime.directory import uuid_text
from detshare.runtime.policies import Policies
from detshare.runtime.room import Room
from detshare.runtime.shut import Shut
from detshare.runtime.tenant import Refused, Tell, Tenant

PATIENCE: Final = 5.0
"""seconds in which programs are to give back host memory that somebody else needs"""


_GRAIN: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a tenant that its library has not answered yet."""

    tenant: Tenant
    number: int

    def answer(self) -> str | None:
        """Empty once it is done, why not where it was refused, None before."""
        try:
            counters = self.tenant.pages.counters
            if counters.get("park_ack") != self.number:
                return None
            reason = counters.get("park_reason")
        except ValueError:  # its pages are closed
            return "it has ended"
        return self.tenant.park.why_not(reason) if reason else ""


class Parking:
    """`tenants` and `lock` are those of who lets programs in."""

    def __init__(
        self, tenants: Mapping[str, Tenant], lock: threading.RLock, policies: Policies, arena: Arena, tell: Tell
    ) -> None:
        self._tenants = tenants
        self._lock = lock
        self._policies = policies
        self._arena = arena
        self._tell = tell
        self.room = Room(tenants, policies)
        self.shut = Shut(tenants, lock, policies)

    def ask(self, process: ProcessId, away: bool, room_for: int = 0) -> list[Asked]:
        """Ask a program, in whatever lane, to let its memory go or to have it back. Empty where it is not ours.

        `room_for`: the PID of another one, which has the room first.
        """
        with self._lock:
            mine = [tenant for tenant in self._tenants.values() if tenant.record.process == process]
            for tenant in mine:
                tenant.park.room_for = room_for if away else 0
                tenant.park.leaves, tenant.park.comes = bool(away and room_for), False
                if away and room_for:
                    self.room.give(tenant, room_for)
                tenant.park.next(away)
                self._policies.show(tenant)
            return [Asked(tenant, tenant.park.asked) for tenant in mine]

    def lazily(self, processes: set[ProcessId]) -> None:
        """What parks of these from now on is to come back lazily."""
        with self._lock:
            for tenant in self._tenants.values():
                if tenant.record.process in processes and not tenant.park.lazy:
                    tenant.park.lazy = True
                    self._policies.show(tenant)

    @staticmethod
    def wait(asked: list[Asked], seconds: float) -> dict[int, str | None]:
        """By PID: empty where it was done, why not, or None where nothing was answered within `seconds`.

        Of a program on several GPUs a GPU without memory that can leave is no refusal.
        """
        until = time.monotonic() + seconds
        while any(each.answer() is None for each in asked) and time.monotonic() < until:
            time.sleep(0.002)
        made: dict[int, list[str | None]] = {}
        for each in asked:
            made.setdefault(each.tenant.record.pid, []).append(each.answer())
        return {pid: _together(answers) for pid, answers in made.items()}

    def _asks(self, pid: int, uuid: bytes) -> tuple[Tenant, int]:
        """Who asks for host memory, and how much it has. Refused."""
        with self._lock:
            gpu = uuid_text(uuid)
            mine = (
                t for t in self._tenants.values() if t.record.pid == pid and gpu in (t.record.page, t.record.gpu.uuid)
            )
            tenant = next(mine, None)
            if tenant is None:
                raise Refused(1, f"PID {pid} has no board on {gpu}")
            had = tenant.park.arena = tenant.pages.counters.get("arena_bytes")
            tenant.park.refusal = ""
            self.room.count()
            return tenant, had

    def grant(self, pid: int, uuid: bytes, size: int) -> tuple[Tenant, int]:
        """Count host memory for a program's GPU besides what it has; whose, and how much that was. Refused."""
        tenant, had = self._asks(pid, uuid)
        self._make_room(tenant, had + size)
        with self._lock:
            try:
                self._arena.room(self._tenants.values(), tenant, had + size)
            except Refused as error:
                tenant.park.refusal = str(error)
                raise
        return tenant, had

    def give(self, pid: int, uuid: bytes, size: int) -> int:
        """A descriptor of host memory for a program's GPU, besides what it has. Refused."""
        tenant, had = self.grant(pid, uuid, size)
        try:
            return self._arena.make(str(pid), size, tenant.record.gpu.uuid)
        except Refused as error:
            with self._lock:
                tenant.park.refusal, tenant.park.arena = str(error), had
            raise

    def give_some(self, pid: int, uuid: bytes, most: int) -> int:
        """A descriptor of as much host memory as there is, at most so much. Refused."""
        tenant, had = self._asks(pid, uuid)
        self._make_room(tenant, had + most, part=True)
        with self._lock:
            size = min(most, self._arena.left(self._tenants.values(), tenant)) // _GRAIN * _GRAIN
            if size <= 0:
                text = f"the arena of {sizes.text(self._arena.limit)} has {sizes.text(size)} left now"
                tenant.park.refusal = f"{text}; next: raise park.arena"
                raise Refused(errno.ENOSPC, tenant.park.refusal)
            tenant.park.arena = had + size
        try:
            return self._arena.make(str(pid), size, tenant.record.gpu.uuid)
        except Refused:
            with self._lock:
                tenant.park.arena = had
            raise

    def leaves(self, pid: int) -> bool:
        """Whether it leaves in parts, so that a lack of host memory refuses nothing."""
        with self._lock:
            return any(t.park.leaves for t in self._tenants.values() if t.record.pid == pid)

    def presses(self) -> bool:
        """Whether somebody waits for room on a GPU."""
        with self._lock:
            return self.room.presses()

    def _make_room(self, who: Tenant, size: int, part: bool = False) -> None:
        """Have programs whose memory is on their GPU give back host memory, in which they only keep copies, those
        that launched nothing for longest first. Nobody is asked where that would not be enough, but for a `part`."""
        with self._lock:
            lacks = self._arena.lacks(self._tenants.values(), who, size)
            spare = sorted(
                (tenant for tenant in self._tenants.values() if tenant is not who and _spares(tenant)),
                key=lambda tenant: tenant.pages.counters.get("last_launch"),
            )
            if lacks <= 0 or (not part and sum(tenant.park.arena for tenant in spare) < lacks):
                return
            asked: list[Tenant] = []
            while lacks > 0 and spare:
                tenant = spare.pop(0)
                lacks -= tenant.park.arena
                tenant.park.returns = (tenant.park.returns + 1) & 0xFFFFFFFF
                tenant.park.owes = True
                self._policies.show(tenant)
                asked.append(tenant)
        until = time.monotonic() + PATIENCE
        while any(self._owes(tenant) for tenant in asked) and time.monotonic() < until:
            time.sleep(0.002)

    def _owes(self, tenant: Tenant) -> bool:
        """Whether a request to give host memory back is not answered yet."""
        with self._lock:
            if not tenant.park.owes:
                return False
            try:
                counters = tenant.pages.counters
                if counters.get("returned") != tenant.park.returns:
                    return True
                tenant.park.arena = counters.get("arena_bytes")
            except ValueError:  # its pages are closed: it has ended
                pass
            tenant.park.owes = False
            return False

    @property
    def limit(self) -> int:
        """Bytes of the arena."""
        return self._arena.limit

    @property
    def used(self) -> int:
        """Bytes of it that programs have."""
        with self._lock:
            return sum(tenant.park.arena for tenant in self._tenants.values())

    def tick(self) -> None:
        """Tell what changed, and park who has been idle for as long as was asked for. A few times a second."""
        with self._lock:
            for tenant in self._tenants.values():
                self._owes(tenant)
                self._look(tenant)
            self.room.tick(monotonic_ns())

    def _look(self, tenant: Tenant) -> None:
        counters, now = tenant.pages.counters, monotonic_ns()
        state = counters.get("park_state")
        self._tell_changes(tenant, state, now)
        after = tenant.record.desired.park_after
        if after is None or state != layout.PARK_HOME or not counters.get("parkable_bytes"):
            return
        if counters.get("park_ack") != tenant.park.asked or tenant.slot.get("active") or tenant.slot.held:
            return
        tenant.park.since_ns = tenant.park.since_ns or now
        if now - max(counters.get("last_launch"), tenant.park.since_ns) > after * 1e9:
            tenant.park.since_ns = now  # a refusal is no reason to ask again at once
            tenant.park.room_for, tenant.park.leaves = 0, False
            tenant.park.next(True)
            self._policies.show(tenant)

    def _tell_changes(self, tenant: Tenant, state: int, now: int) -> None:
        """By counts, for memory may leave and come back between two looks."""
        counters, known, gpu = tenant.pages.counters, tenant.park, tenant.record.gpu.uuid
        told = []
        if state != layout.PARK_HOME or counters.get("parks") != known.parks:
            known.home_ns = 0
        if state == layout.PARK_HOME:
            known.home_ns = known.home_ns or now
        if (parks := counters.get("parks")) != known.parks:
            size = sizes.text(counters.get("parked_bytes") or counters.get("parkable_bytes"))
            copied = f", {sizes.text(counters.get('copied_bytes'))} of it copied"
            whom = f", for PID {known.room_for}" if known.room_for else ""
            told.append(f"parked: {size} left {gpu} in {counters.get('park_ns') / 1e9:.3g} s{copied}{whom}")
            known.parks, known.away = parks, True
        if (asks := bool(wanted := counters.get("room_bytes"))) != known.asks:
            known.asks = asks
            told += [f"an allocation of it waits for {sizes.text(wanted)} of room on {gpu}"] if asks else []
        if (lazily := state == layout.PARK_LENT) and not known.returns_lazily:
            told.append(f"it runs over host memory, and its memory comes back to {gpu}")
        known.returns_lazily = lazily
        waits = state == layout.PARK_WAITING
        if waits and not known.waits:
            told.append(f"it is parked and wants to go on, and waits for room on {gpu}")
        known.waits = waits or (known.waits and state != layout.PARK_HOME)
        rest = counters.get("parkable_bytes") - counters.get("parked_bytes")
        partly = known.leaves and state in (layout.PARK_AWAY, layout.PARK_WAITING) and rest > 0
        if partly and not known.partly:
            has = f"{sizes.text(self.used)} of {sizes.text(self._arena.limit)} are in use"
            told.append(f"{sizes.text(rest)} stay on {gpu} until the arena has room, {has}; next: raise park.arena")
        known.partly = partly
        if known.away and state == layout.PARK_HOME:
            told.append(f"its memory is on {gpu} again, after {counters.get('resume_ns') / 1e9:.3g} s")
            known.away, known.since_ns = False, now
        for text in told:
            self._tell("park", tenant.record.pid, text)


def _spares(tenant: Tenant) -> bool:
    """Whether its host memory is not needed now, nor about to be."""
    counters = tenant.pages.counters
    home = counters.get("park_state") == layout.PARK_HOME and counters.get("park_ack") == tenant.park.asked
    return home and tenant.park.arena > 0 and not tenant.park.owes


def _together(answers: list[str | None]) -> str | None:
    """Of a program's GPUs."""
    if None in answers:
        return None
    return "" if "" in answers else answers[0]
