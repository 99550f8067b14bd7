# SPDX-License-Identifier: Apache-2.0
"""Rows about observers can miss their targets."""

from __future__ import annotations

from typing import Any

import pytest

from detshare.tools.bench.vm import observers, root_backend
from detshare.tools.bench.vm.inside import observers as inside
from detshare.tools.bench.vm.machines import SIM
from detshare.tools.bench.vm.report import Report

COUNTED: dict[str, dict[str, Any]] = {
    "launches": {"launches": inside.LAUNCHES, "shapes": [inside.LAUNCHES], "copies": inside.COPIED, "copied": 2060288},
    "allocations": {"born": inside.ALLOCATIONS, "died": inside.ALLOCATIONS},
    "processes": {"born": inside.PROCESSES, "died": inside.PROCESSES},
    "storm": {"calls": inside.CALLS, "events": inside.CALLS + 9, "rate": 60_000.0, "lost": 0},
    "forced": {"lost": inside.FORCED, "kept": 9, "events": inside.FORCED + 9, "told": True},
}
ROUND = {"event": "agreement", "groups": 3, "differ": 0, "objects": 9, "driver": 9, "module": 9}
LEGS = {"told": 1.0, "set": 3.0}
BORN: dict[str, Any] = {"event": "birth", "observers": True, "waited_ms": 1.0, "ms": 3.0, "early": True, "legs": LEGS}
LOOKED = {"event": "birth", "observers": False, "waited_ms": 130.0, "ms": 135.0, "early": False, "legs": {}}
ENDED = {"event": "ended", "status": 0}


def _missed(monkeypatch: pytest.MonkeyPatch, module: Any, measure: Any, lines: list[dict[str, Any]]) -> list[str]:
    monkeypatch.setattr(module, "run", lambda *args, took, **named: [took(line) or line for line in lines])
    monkeypatch.setattr(module.build, "sources", list)
    report = Report("x", "model", "x")
    measure(report, SIM, 3)
    return [row.what.removeprefix(f"{SIM.text}: ") for row in report.missed]


def counts(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, dict[str, Any]]) -> list[str]:
    lines = [{"event": name, **line, **wrong.get(name, {})} for name, line in COUNTED.items()]
    monkeypatch.setattr(observers, "_prepare", lambda: None)
    return _missed(monkeypatch, observers, observers.counts, lines)


def test_exact_counts_meet_every_target(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts(monkeypatch, {}) == []


@pytest.mark.parametrize(
    ("event", "wrong", "what"),
    [
        ("launches", {"launches": 10006}, "launches counted"),
        ("launches", {"shapes": [10000, 7]}, "of them in the one grid and block that there was"),
        ("launches", {"copied": 1}, "bytes copied"),
        ("allocations", {"born": 1010}, "births of memory objects"),
        ("processes", {"died": 100}, "programs that died"),
        ("storm", {"calls": 5}, "storm, calls told of"),
        ("storm", {"lost": 1}, "storm, events lost"),
        ("storm", {"rate": 49_999.0}, "storm, calls a second while nobody read"),
        ("forced", {"told": False}, "a ring of one page: the loss is said"),
        ("forced", {"kept": 8}, "a ring of one page: events lost and kept"),
    ],
)
def test_each_wrong_count_misses_its_target(
    monkeypatch: pytest.MonkeyPatch, event: str, wrong: dict[str, Any], what: str
) -> None:
    assert counts(monkeypatch, {event: wrong}) == [what]


def births(monkeypatch: pytest.MonkeyPatch, born: dict[str, Any] = BORN, **wrong: Any) -> list[str]:
    def line(made: dict[str, Any]) -> dict[str, Any]:
        return made | {name: value for name, value in wrong.items() if name in made}

    heard = {"event": "heard", "lost": 0, "notes": []}
    lines = [line(each) for each in (ROUND, ROUND, heard, BORN, BORN, born)]
    return _missed(monkeypatch, root_backend, root_backend.measure, [*lines, LOOKED, line(ENDED), ENDED])


def test_a_backend_that_hears_everything_meets_every_target(monkeypatch: pytest.MonkeyPatch) -> None:
    assert births(monkeypatch) == []


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"differ": 1}, "of them heard of otherwise than the backend's own asking has them"),
        ({"module": 8}, "moments when detshare.ko's tree had other objects"),
        ({"driver": 8}, "moments when the driver had other objects"),
        ({"lost": 2}, "events lost"),
        ({"ms": 11.0}, "no module, a look a minute: first TSG to class, median"),
        ({"status": 1}, "daemons that ended well"),
    ],
)
def test_each_fault_misses_its_target(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], what: str) -> None:
    assert births(monkeypatch, **wrong) == [what]


def test_a_class_that_a_look_gave_first_counts_and_one_that_came_late_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = BORN | {"early": False, "legs": {}}
    assert births(monkeypatch, looked | {"ms": 40.0}) == []
    late = "no module, a look a minute: programs that had their class within 100 ms"
    assert births(monkeypatch, looked | {"ms": 101.0}) == [late]
    assert births(monkeypatch, BORN | {"ms": 101.0}) == [late]
