# SPDX-License-Identifier: Apache-2.0
"""Dice for the daemon's side of parking: programs that come, ask, answer late or never, lie and die, in any order.

The real Parking, Room and Arena, over counters that are plain numbers; the clock is the dice's. Level unit.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from detshare.ctl.core.driver import ProcessId
from detshare.runtime import board_layout as layout
from detshare.runtime import parking as parkings
from detshare.runtime import room as rooms
from detshare.runtime.arena import Arena
from detshare.runtime.directory import uuid_text
from detshare.runtime.parking import Parking
from detshare.runtime.reflexes import Desired
from detshare.runtime.residence import Residence
from detshare.runtime.tenant import Refused

MIB: Final = 1 << 20
SECOND: Final = 1_000_000_000
GPUS: Final = (b"a" * 16, b"b" * 16)
LIMIT: Final = 64
"""MiB of the arena"""
NAMES: Final = ("park_state", "parkable_bytes", "parked_bytes", "arena_bytes", "room_bytes", "parks", "park_ack")
MORE_NAMES: Final = ("returned", "last_launch", "park_ns", "resume_ns", "copied_bytes", "park_reason")


class Page:
    """A program's counters; ValueError once they are closed."""

    def __init__(self) -> None:
        self.values = dict.fromkeys((*NAMES, *MORE_NAMES), 0)
        self.closed = False

    def get(self, name: str) -> int:
        if self.closed:
            raise ValueError("closed")
        return self.values[name]


class Life:
    """One machine under one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.honest = seed % 2 == 0
        """nobody lies"""
        self.now = 1000 * SECOND
        self.everybody: dict[str, Any] = {}
        self.liars: set[int] = set()
        self.told: list[str] = []
        self.given: dict[int, int] = {}
        """PID -> bytes of an honest program"""
        self.pid = 0
        policies: Any = SimpleNamespace(show=lambda tenant: None)
        self.parking = Parking(
            self.everybody, threading.RLock(), policies, Arena(LIMIT * MIB), lambda kind, pid, text: self._tell(text)
        )

    def _tell(self, text: str) -> None:
        self.told.append(text)

    def live(self, steps: int) -> None:
        """So many steps, with what must hold after each; then everybody's end."""
        clock = mock.patch.multiple(parkings, monotonic_ns=lambda: self.now, PATIENCE=0.0)
        with clock, mock.patch.multiple(rooms, monotonic_ns=lambda: self.now):
            for _ in range(steps):
                self.dice.choice((self.come, self.ask, self.take, self.take, self.answer, self.answer, self.lie,
                                  self.die, self.tick, self.tick))()  # fmt: skip
                self.check()
            self.settle()

    def come(self) -> None:
        if len(self.everybody) >= 8:
            return
        self.pid += 1
        page, uuid = Page(), uuid_text(self.dice.choice(GPUS))
        page.values["parkable_bytes"] = self.dice.randrange(1, 40) * MIB
        gpu, process = SimpleNamespace(uuid=uuid), ProcessId(self.pid, 1)
        record = SimpleNamespace(pid=self.pid, process=process, gpu=gpu, page=uuid)
        record.desired = Desired(park_after=self.dice.choice((None, 0.1, 5.0)))
        slot = SimpleNamespace(get=lambda name: 0, held=False)
        self.everybody[str(self.pid)] = SimpleNamespace(
            record=record, pages=SimpleNamespace(counters=page), park=Residence(), slot=slot
        )
        if not self.honest and self.dice.random() < 0.5:
            self.liars.add(self.pid)

    def one(self) -> Any:
        return self.dice.choice(list(self.everybody.values())) if self.everybody else None

    def ask(self) -> None:
        """Somebody is parked, for another, for one that died, for itself, or for nobody; or resumed."""
        if (tenant := self.one()) is not None:
            whom = self.dice.randrange(self.pid + 2)
            asked = self.parking.ask(tenant.record.process, self.dice.random() < 0.7, whom)
            self.parking.wait(asked, 0.0)

    def take(self) -> None:
        """A library asks for host memory; an honest one then says what it has."""
        if (tenant := self.one()) is None:
            return
        pid, size = tenant.record.pid, self.dice.randrange(1, 30) * 2 * MIB
        uuid = next(each for each in GPUS if uuid_text(each) == tenant.record.page)
        with contextlib.suppress(Refused):
            give = self.dice.choice((self.parking.give, self.parking.give_some))
            descriptor = give(pid, uuid, size)
            got = os.fstat(descriptor).st_size
            os.close(descriptor)
            if pid not in self.liars:
                self.given[pid] = self.given.get(pid, 0) + got
                tenant.pages.counters.values["arena_bytes"] = self.given[pid]

    def answer(self) -> None:
        """An honest library gets round to what it was asked: its memory goes where it is wanted."""
        if (tenant := self.one()) is None or tenant.record.pid in self.liars:
            return
        counters, pid = tenant.pages.counters.values, tenant.record.pid
        away = bool(tenant.park.asked & layout.PARK_WANTED)
        counters["parks"] += counters["park_ack"] != tenant.park.asked and away
        counters["park_ack"] = tenant.park.asked
        counters["park_state"] = self.dice.choice((layout.PARK_AWAY, layout.PARK_WAITING)) if away else layout.PARK_HOME
        counters["parked_bytes"] = self.dice.randrange(counters["parkable_bytes"] + 1) if away else 0
        if counters["returned"] != tenant.park.returns and not away:
            counters["arena_bytes"] = self.given[pid] = 0
        counters["returned"] = tenant.park.returns

    def lie(self) -> None:
        tenant = self.one()
        if tenant is None or tenant.record.pid not in self.liars:
            return
        for name in self.dice.sample(tuple(tenant.pages.counters.values), 4):
            tenant.pages.counters.values[name] = self.dice.choice((0, 1, 2, 5, 99, (1 << 32) - 1, (1 << 64) - 1))

    def die(self) -> None:
        if (tenant := self.one()) is None or self.dice.random() < 0.6:
            return
        del self.everybody[str(tenant.record.pid)]
        self.given.pop(tenant.record.pid, None)
        tenant.pages.counters.closed = True

    def tick(self) -> None:
        self.now += self.dice.choice((SECOND // 4, SECOND, 7 * SECOND))
        self.parking.tick()
        self.parking.presses()

    def check(self) -> None:
        """Honest programs alone never have more than the arena; nobody is kept away for longer than is promised."""
        if self.honest:
            assert sum(self.given.values()) <= LIMIT * MIB, self.given
        for tenant in self.everybody.values():
            assert tenant.park.stay_until <= self.now + rooms.MOST_NS
            assert tenant.park.arena >= 0

    def settle(self) -> None:
        """All but one end: that one has the whole arena, and nobody keeps it away."""
        if not self.everybody:
            self.come()
        last = next(iter(self.everybody.values()))
        for tenant in [each for each in self.everybody.values() if each is not last]:
            del self.everybody[str(tenant.record.pid)]
            tenant.pages.counters.closed = True
        last.pages.counters.values |= {"arena_bytes": 0, "parked_bytes": 0, "park_state": layout.PARK_HOME}
        for _ in range(3):
            self.now += rooms.MOST_NS
            self.parking.tick()
        assert last.park.stay_until <= self.now
        assert not last.park.comes
        uuid = next(each for each in GPUS if uuid_text(each) == last.record.page)
        os.close(self.parking.give(last.record.pid, uuid, LIMIT * MIB))


__all__ = ["Life"]
