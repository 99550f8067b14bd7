# SPDX-License-Identifier: Apache-2.0
"""What the daemon makes of a program's counters: when it asks, what it tells, what it takes for an answer."""

from __future__ import annotations

import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core.driver import ProcessId
from detshare.runtime import board_layout as layout
from detshare.runtime import parking as module
from detshare.runtime.arena import Arena
from detshare.runtime.parking import Asked, Parking
from detshare.runtime.reflexes import Desired
from detshare.runtime.residence import REASONS, Residence

S = 1_000_000_000


class Slot:
    active = 0
    held = False

    def get(self, name: str) -> int:
        return int(getattr(self, name))


class Page:
    def __init__(self, values: defaultdict[str, int]) -> None:
        self._values = values

    def get(self, name: str) -> int:
        return self._values[name]


class Case:
    """One tenant, its clock, and what was written and told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: float | None = None) -> None:
        self.now = 1000 * S
        self.told: list[str] = []
        self.shown = 0
        record = SimpleNamespace(pid=7, process=ProcessId(7, 1), gpu=SimpleNamespace(uuid="GPU-1"))
        record.desired = Desired(park_after=after)
        self.counters, self.slot = defaultdict(int, parkable_bytes=5 << 20), Slot()
        pages = SimpleNamespace(counters=Page(self.counters))
        self.tenant: Any = SimpleNamespace(record=record, pages=pages, slot=self.slot, park=Residence())
        policies: Any = SimpleNamespace(show=self._show)
        everybody: Any = {"a": self.tenant}
        self.parking = Parking(everybody, threading.RLock(), policies, Arena(1 << 30), self._tell)
        monkeypatch.setattr(module, "monotonic_ns", lambda: self.now)

    def _show(self, _tenant: Any) -> None:
        self.shown += 1

    def _tell(self, kind: str, pid: int | None, text: str) -> None:
        assert (kind, pid) == ("park", 7)
        self.told.append(text)

    def tick(self, seconds: float = 0.25, **changes: int) -> None:
        self.now += int(seconds * S)
        self.counters.update(changes)
        self.parking.tick()


def test_each_park_and_each_way_back_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.tick(park_state=layout.PARK_LEAVING)
    assert case.told == []
    case.tick(park_state=layout.PARK_AWAY, parks=1, parked_bytes=5 << 20, park_ns=S // 2, copied_bytes=2 << 20)
    case.tick()
    assert case.told == ["parked: 5M left GPU-1 in 0.5 s, 2M of it copied"]
    case.tick(park_state=layout.PARK_WAITING)
    case.tick(park_state=layout.PARK_COMING)
    case.tick(park_state=layout.PARK_WAITING)
    assert case.told[1:] == ["it is parked and wants to go on, and waits for room on GPU-1"]
    case.tick(park_state=layout.PARK_HOME, parked_bytes=0, resume_ns=S)
    case.tick()
    assert case.told[2:] == ["its memory is on GPU-1 again, after 1 s"]
    # away and back between two looks
    case.tick(parks=2)
    assert case.told[3:] == [
        "parked: 5M left GPU-1 in 0.5 s, 2M of it copied",
        "its memory is on GPU-1 again, after 1 s",
    ]


def test_idle_programs_are_asked_after_their_time_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, after=30.0)
    case.tick()
    case.tick(29.0)
    assert case.shown == 0
    case.tick(2.0)
    assert case.shown == 1
    assert case.tenant.park.asked & layout.PARK_WANTED
    case.tick(100.0)
    assert case.shown == 1  # it has not answered
    case.counters["park_ack"] = case.tenant.park.asked  # refused
    case.tick(1.0)
    case.tick(31.0)
    assert case.shown == 2


@pytest.mark.parametrize("why", ["active", "held", "launched", "nothing", "away"])
def test_who_is_not_idle_is_left_alone(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    case = Case(monkeypatch, after=1.0)
    match why:
        case "active":
            case.slot.active = 1
        case "held":
            case.slot.held = True
        case "launched":
            case.counters["last_launch"] = 5000 * S
        case "nothing":
            case.counters["parkable_bytes"] = 0
        case "away":
            case.counters["park_state"] = layout.PARK_AWAY
    case.tick()
    case.tick(100.0)
    assert case.shown == 0


def test_an_answer_is_of_the_request_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    [asked] = case.parking.ask(ProcessId(7, 1), True)
    assert asked.answer() is None
    case.counters.update(park_ack=asked.number, park_reason=layout.PARK_OK)
    assert asked.answer() == ""
    case.counters["park_reason"] = layout.PARK_ARENA
    case.tenant.park.refusal = "it is full"
    assert asked.answer() == "there is no host memory for it: it is full"
    case.counters["park_reason"] = 99
    assert "reason 99" in (asked.answer() or "")
    [later] = case.parking.ask(ProcessId(7, 1), True)
    assert later.answer() is None
    assert case.parking.ask(ProcessId(8, 1), True) == []


def test_every_reason_has_words() -> None:
    named = {value for name, value in vars(layout).items() if name.startswith("PARK_")}
    assert set(REASONS) <= named
    codes = (layout.PARK_OFF, layout.PARK_NOTHING, layout.PARK_ARENA, layout.PARK_BUSY, layout.PARK_CAPTURE)
    assert {*codes, layout.PARK_CONTEXT, layout.PARK_DRIVER, layout.PARK_ENDING} == set(REASONS)


@given(st.lists(st.sampled_from([None, "", "busy"]), min_size=1, max_size=4))
def test_a_program_on_several_gpus_has_one_answer(answers: list[str | None]) -> None:
    tenant: Any = SimpleNamespace(record=SimpleNamespace(pid=7))
    asked: Any = [SimpleNamespace(tenant=tenant, answer=lambda each=each: each) for each in answers]
    expected = None if None in answers else "" if "" in answers else "busy"
    assert Parking.wait(asked, 0.0) == {7: expected}


def test_a_program_that_ended_has_answered() -> None:
    class Closed:
        def get(self, _name: str) -> int:
            raise ValueError("released")

    tenant: Any = SimpleNamespace(pages=SimpleNamespace(counters=Closed()), park=Residence())
    assert Asked(tenant, 3).answer() == "it has ended"
