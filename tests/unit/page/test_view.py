# SPDX-License-Identifier: Apache-2.0
"""What browsers are told: all at first, then what changed."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from fake_backend import GPU, FakeBackend, programs

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.gputime import GpuTime, Mode, Pattern, Place, Schedule, Standing
from detshare.ctl.core.observed import Requests
from detshare.ctl.core.snapshot import Event, Program, Snapshot
from detshare.ctl.daemon.api import HttpError
from detshare.ctl.daemon.page import view as view_module
from detshare.ctl.daemon.page.rows import row, text
from detshare.ctl.daemon.page.view import LEAST_S, MOST_EVENTS, View
from detshare.ctl.top import rows as top_rows


class Service:
    """What the view needs of a daemon."""

    def __init__(self) -> None:
        self.programs: list[Program] = programs()
        self.schedules: tuple[Schedule, ...] = ()
        self.gpus = FakeBackend().look().gpus
        self.events: deque[Event] = deque(maxlen=1000)
        self.told = 0
        self.looks = 0
        status = {"name": "strict", "failed": ""}
        self.policy = SimpleNamespace(engine=SimpleNamespace(status=lambda: status))

    def snapshot(self) -> Snapshot:
        self.looks += 1
        seen = FakeBackend().look()
        return dataclasses.replace(seen, programs=tuple(self.programs), gpus=self.gpus, schedules=self.schedules)

    def remembered(self) -> tuple[Event, ...]:
        return tuple(self.events)

    def tell(self, text: str) -> None:
        self.events.append(Event(1.0, "change", 1, text))
        self.told += 1


class Browser:
    """One that asks as the page does."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.boot, self.version, self.told = "", -1, -1
        self.rows: dict[str, dict[str, Any]] = {}

    def ask(self) -> dict[str, Any]:
        answer = self.view.answer(self.boot, self.version, self.told)
        self.boot, self.version, self.told = answer["boot"], answer["version"], answer["told"]
        if answer["full"]:
            self.rows = {}
        for key in answer["gone"]:
            self.rows.pop(key, None)
        self.rows |= {f"{each['pid']}:{each['start']}": each for each in answer["rows"]}
        return answer


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=1000.0)


@pytest.fixture
def view(service: Service, clock: SimpleNamespace) -> View:
    return View(service, lambda: clock.now)  # type: ignore[arg-type]


def test_the_first_answer_has_all_and_the_next_what_changed(
    service: Service, view: View, clock: SimpleNamespace
) -> None:
    browser = Browser(view)
    first = browser.ask()
    assert first["full"]
    assert {each["pid"] for each in first["rows"]} == {4242, 4300, 4400}
    assert [gpu["name"] for gpu in first["gpus"]] == ["Fake H100"]
    assert first["machine"]["policy"] == {"name": "strict", "failed": ""}
    clock.now += 1
    second = browser.ask()
    assert (second["full"], second["rows"], second["gone"], second["version"]) == (False, [], [], first["version"])
    service.programs[0] = dataclasses.replace(service.programs[0], klass="low")
    gone = service.programs.pop(1)
    clock.now += 1
    third = browser.ask()
    assert [(each["pid"], each["class"]) for each in third["rows"]] == [(4242, "low")]
    assert third["gone"] == [f"{gone.id.pid}:{gone.id.start}"]
    assert "lately" not in third["rows"][0]


def test_who_asks_late_or_of_another_daemon_gets_what_he_needs(
    service: Service, view: View, clock: SimpleNamespace
) -> None:
    browser, other = Browser(view), Browser(view)
    browser.ask()
    other.ask()
    for number in range(40):
        service.programs[number % 3] = dataclasses.replace(service.programs[number % 3], weight=number + 1)
        service.programs[2] = dataclasses.replace(service.programs[2], id=ProcessId(4400, 200 + number))
        clock.now += 1
        browser.ask()
    other.ask()
    assert other.rows == browser.rows
    assert view.answer("another", browser.version, browser.told)["full"]
    assert view.answer(browser.boot, browser.version + 1, browser.told)["full"]


def test_a_program_with_a_number_that_is_used_again_is_another_one(
    service: Service, view: View, clock: SimpleNamespace
) -> None:
    browser = Browser(view)
    browser.ask()
    service.programs[0] = dataclasses.replace(service.programs[0], id=ProcessId(4242, 999))
    clock.now += 1
    answer = browser.ask()
    assert answer["gone"] == ["4242:100"]
    assert [(each["pid"], each["start"]) for each in answer["rows"]] == [(4242, 999)]


def test_what_ended_long_ago_is_forgotten_and_who_missed_it_gets_all(
    service: Service, view: View, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "MOST_GONE", 3)
    late, browser = Browser(view), Browser(view)
    late.ask()
    for number in range(6):
        service.programs[2] = dataclasses.replace(service.programs[2], id=ProcessId(4400, 200 + number))
        clock.now += 1
        browser.ask()
    assert late.ask()["full"]
    assert late.rows.keys() == browser.rows.keys()


def test_many_browsers_cost_one_look(service: Service, view: View, clock: SimpleNamespace) -> None:
    assert service.looks == 0
    for _ in range(10):
        Browser(view).ask()
    assert service.looks == 1
    view.stir()  # somebody changed something
    Browser(view).ask()
    assert service.looks == 2
    clock.now += LEAST_S
    Browser(view).ask()
    assert service.looks == 3


def test_each_event_comes_once_and_the_newest_first_of_all(
    service: Service, view: View, clock: SimpleNamespace
) -> None:
    for number in range(1200):
        service.tell(str(number))
    browser = Browser(view)
    assert [each["text"] for each in browser.ask()["events"]] == [str(each) for each in range(1000, 1200)]
    service.tell("new")
    assert [each["text"] for each in browser.ask()["events"]] == ["new"]
    assert browser.ask()["events"] == []
    for number in range(5000):
        service.tell(str(number))
    assert len(browser.ask()["events"]) == MOST_EVENTS


def test_history_goes_on_and_is_told_whole_to_who_comes(
    service: Service, view: View, clock: SimpleNamespace
) -> None:
    browser = Browser(view)
    for share in (0.0, 0.5, 1.0):
        clock.now += 1
        slots = (share,) * 10
        times = (GpuTime(GPU, 1.0, share, share, 1.0, 1.0, 1.0, slots),)
        waits = Requests(10, 4.0, 0.01, 0.02 + share, 0.1, 10)
        service.programs[0] = dataclasses.replace(service.programs[0], gpu_time=times, requests=waits)
        answer = browser.ask()
        assert answer["rows"][0]["now"] == [[0, round(50 * share)]]
    full = Browser(view).ask()
    (first,) = (each for each in full["rows"] if each["pid"] == 4242)
    assert first["lately"] == {"0": "#<U"}
    assert full["gpus"][0]["share"] == [0.0, 0.5, 1.0]
    detail = view.detail(4242)
    assert detail["share"] == {"0": [0.0, 0.5, 1.0]}
    assert detail["latency"] == [0.02, 0.52, 1.02]
    assert detail["memory"] == [float(3 << 30)] * 3
    assert detail["latency_of"] == "requests, reported"


def test_each_gpu_has_its_own_history(service: Service, view: View, clock: SimpleNamespace) -> None:
    other = dataclasses.replace(service.gpus[0], uuid="GPU-1", minor=1)
    service.gpus = (*service.gpus, other)
    half = GpuTime(GPU, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0, (0.5,) * 10)
    tenth = dataclasses.replace(half, gpu="GPU-1", share=0.1, history=(0.1,) * 10)
    service.programs[0] = dataclasses.replace(
        service.programs[0], gpus=(GPU, "GPU-1"), gpu_time=(half, tenth), gpu_memory={GPU: 7, "GPU-1": 9}
    )
    browser = Browser(view)
    first = browser.ask()
    sums = [(gpu["number"], gpu["share"], gpu["memory"]) for gpu in first["gpus"]]
    assert sums == [(0, [0.5], [7.0]), (1, [0.1], [9.0])]
    service.programs[0] = dataclasses.replace(service.programs[0], gpu_time=(half,))  # it left the second one
    clock.now += 1
    (told,) = browser.ask()["rows"]
    assert (told["now"], told["gpus"]) == ([[0, 25], [1, 0]], [0, 1])
    assert view.detail(4242)["share"] == {"0": [0.5, 0.5], "1": [0.1, 0.0]}


def test_after_minutes_without_anybody_the_history_begins_anew(
    service: Service, view: View, clock: SimpleNamespace
) -> None:
    Browser(view).ask()
    clock.now += 3600
    full = Browser(view).ask()
    assert full["gpus"][0]["memory"] == [float(3 << 30)]


def test_the_rotation_is_told_in_the_words_of_top(service: Service, view: View) -> None:
    service.schedules = (Schedule(GPU, Mode.TURNS, Pattern.BURSTS, "red", "4300", 0.04, 50, 900.0, 0.0, "it does"),)
    place = Place(GPU, "red", Standing.WAITS, 1.2)
    service.programs[0] = dataclasses.replace(service.programs[0], places=(place,))
    answer = Browser(view).ask()
    (gpu,) = answer["gpus"]
    assert gpu["rotation"].startswith("turns, red has its turn for 40ms, then 4300")
    assert (gpu["holder"], gpu["why"]) == ("red", "it does")
    assert answer["rows"][0]["turn"] == "in 1.2s"
    assert "GPU 0: waits for its turn (tenant red); its next begins in 1.2s" in view.detail(4242)["lines"]


def test_a_program_that_is_not_there_has_no_details(view: View) -> None:
    with pytest.raises(HttpError) as refused:
        view.detail(7)
    assert refused.value.status == 404


def test_no_text_of_a_program_turns_or_ends_a_line(service: Service, view: View) -> None:
    odd = "a\x1b[31m\u202eb\nc\u2028d"
    service.programs[0] = dataclasses.replace(service.programs[0], command=odd, user=odd, notes=(odd,))
    told = Browser(view).ask()["rows"][0]
    for each in (told["command"], told["user"], view.detail(4242)["notes"][0]):
        assert each.isprintable()
    assert text("x" * 9999) == "x" * 400


def test_values_are_those_of_top() -> None:
    for program in programs():
        told, shown = row(program, {GPU: 0}, []), top_rows.row(program.to_json(), {GPU: "0"})
        assert (told["pid"], told["start"], told["memory"], told["limit"]) == (
            shown.pid,
            shown.start,
            shown.memory,
            program.memory_limit,
        )
        assert (told["class"], told["state"], told["stalled"]) == (shown.klass, shown.state, shown.stalled)
        assert told["share"] == (None if shown.share is None else round(shown.share, 2))
