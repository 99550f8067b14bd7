# SPDX-License-Identifier: Apache-2.0
"""Rows of the experiments in guests miss their targets when what the guest told is bad."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm import hostile, sched, stress
from detshare.tools.bench.vm.machines import MACHINES, SIM, SIM_61
from detshare.tools.bench.vm.report import Report

LOG = {"event": "log", "lines": 400, "lost": 0, "faults": 0}


@pytest.fixture
def report() -> Report:
    return Report("rows", SIM.proof, "pytest")


def missed(report: Report, word: str) -> bool:
    """Whether the one row with this word in it missed its target."""
    (row,) = (row for row in report.rows if word in row.what and row.ok is not None)
    return row.ok is False


def trick(run: str, **more: Any) -> Line:
    held = run == "filter"
    base = {"event": "trick", "run": run, "who": "root", "name": "own-slice", "goal": "order", "worked": not held}
    return base | {"denied": [[1, 2, 3]] if held else [], "named": ["a line"] if held else []} | more


def hostile_lines(**more: Any) -> list[Line]:
    hurt = {"event": "neighbour", "alone": 90.0, "beside": 88.0}
    return [
        trick("no filter"), trick("filter", **more), hurt | {"run": "no filter", "hurt": True},
        hurt | {"run": "filter", "hurt": False}, {"event": "left", "machine": "sim", "objects": 0}, LOG,
    ]  # fmt: skip


def test_a_tenant_that_is_held_meets_all_targets(report: Report) -> None:
    hostile._person(report, "sim", hostile_lines(), whole=False)
    assert report.missed == []


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"worked": True}, "tricks that work"),
        ({"named": []}, "refused without a row"),
        ({"denied": []}, "refused without a row"),
        ({"name": "no-slice"}, "that should and do not"),
    ],
)
def test_a_trick_that_works_or_is_not_told_is_a_miss(report: Report, more: Line, word: str) -> None:
    hostile._person(report, "sim", hostile_lines(**more), whole=False)
    assert missed(report, word)


def test_a_list_that_was_cut_short_is_a_miss(report: Report) -> None:
    hostile._person(report, "sim", hostile_lines(), whole=True)
    assert missed(report, "tricks played")


def test_each_kind_of_tenant_is_first_on_some_kernel() -> None:
    assert {hostile.people(machine)[0] for machine in (SIM, SIM_61)} == set(hostile.PEOPLE)
    assert all(sorted(hostile.people(machine)) == sorted(hostile.PEOPLE) for machine in MACHINES.values())


def latency(scheme: str, p99: float, low: int = 0, turn: int = 0) -> Line:
    return {
        "event": "latency", "scheme": scheme, "round": turn, "gpu_us": [500.0] * 98 + [p99] * 2,
        "used_us": [100_000, low], "span": 1.0, "slice_low_us": 50,
    }  # fmt: skip


PAUSES = [{"event": "pauses", "pause_ns": [1_000_000] * 5}]


@pytest.mark.parametrize(
    ("p99", "low", "late", "starved"),
    [(840.0, 820_000, False, False), (860.0, 820_000, True, False), (600.0, 800_000, False, True)],
)
def test_latency_and_what_is_left_for_others(report: Report, p99: float, low: int, late: bool, starved: bool) -> None:
    """Alone 600 us, a slice of 50, a switch of 205."""
    lines = [latency("alone", 600.0), latency("no module", 9e9), latency("slices", 650.0)]
    sched._latency(report, "sim", [*lines, latency("turns", p99, low)], PAUSES)
    assert missed(report, "endless kernels, turns, p99") == late
    assert missed(report, "low class, turns") == starved


@pytest.mark.parametrize(("p99", "late"), [(840.0, False), (860.0, True)])
def test_slices_alone_are_judged_as_well(report: Report, p99: float, late: bool) -> None:
    lines = [latency("alone", 600.0), latency("no module", 9e9), latency("slices", p99), latency("turns", 600.0)]
    sched._latency(report, "sim", lines, PAUSES)
    assert missed(report, "endless kernels, slices only, p99") == late
    (bare,) = (row for row in report.rows if "slices only, the same p99" in row.what)
    assert (bare.value, bare.baseline, bare.target) == (p99, 650.0, None)


def test_latencies_of_all_rounds_are_one_measurement_and_rounds_show_their_spread(report: Report) -> None:
    lines = [latency(scheme, 600.0, turn=turn) for scheme in ("alone", "no module", "turns") for turn in range(3)]
    lines += [latency("slices", p99, turn=turn) for turn, p99 in enumerate((600.0, 900.0, 700.0))]
    sched._latency(report, "sim", lines, PAUSES)
    shown = {row.what.rsplit(", ", 1)[1]: row.value for row in report.rows if "slices only" in row.what}
    assert shown["p50"] == 500.0
    assert [row.value for row in report.rows if "fewest launches" in row.what] == [300]
    assert (shown["least p99 of a round"], shown["greatest p99 of a round"]) == (600.0, 900.0)
    (whole,) = (row for row in report.rows if "slices only, p99" in row.what)
    assert whole.value == 700.0  # the third greatest of 300


def test_a_switch_is_what_two_endless_programs_lose(report: Report) -> None:
    line = {"event": "switches", "slice_us": 1000, "span": 1.2, "used_us": [500_000, 500_000]}
    sched._switches(report, "sim", line)
    assert [(row.value, row.baseline) for row in report.rows] == [(200.0, sched.SWITCH_US)]


def test_what_the_simulated_gpu_charges_for_a_switch_is_what_rows_allow() -> None:
    source = (Path(__file__).parents[3] / "tests" / "nvsim" / "engine.c").read_text(encoding="utf-8")
    ((nobody, restore),) = re.findall(r"\bswitch_us = (\d+), restore_us = (\d+)", source)
    assert int(nobody) + int(restore) == sched.SWITCH_US


def events(**late: list[float]) -> Line:
    return {"event": "events", "expected": ["paused"], "late_us": late}


@pytest.mark.parametrize(
    ("late", "wrong"),
    [
        ({"paused": [900.0] * 20}, []),
        ({"paused": [1100.0] * 20}, ["p50 of 20"]),
        ({"paused": [100.0] * 19}, ["heard"]),
        ({}, ["heard"]),
        ({"paused": [100.0] * 20, "gated": [9000.0] * 19}, []),
        ({"paused": [100.0] * 20, "gated": [9000.0] * 20}, ["p50 of 20"]),
    ],
)
def test_events_that_are_missing_or_late_are_a_miss(
    report: Report, late: dict[str, list[float]], wrong: list[str]
) -> None:
    sched._events(report, "sim", events(**late))
    assert [row.what.rsplit(": ", 1)[1].rsplit(", ", 1)[-1] for row in report.missed] == wrong
    assert any("too few to judge" in row.what for row in report.rows) == (len(late.get("gated", [])) == 19)


def test_a_share_beside_its_weight_is_a_miss(report: Report) -> None:
    line = {"event": "shares", "weights": [1, 3], "groups": [1, 1], "used_us": [260_000, 740_000]}
    sched._shares(report, "sim", [line])
    assert not missed(report, "farthest share")
    sched._shares(report, "other", [line | {"used_us": [270_000, 730_000]}])
    assert [row.what for row in report.missed] == [
        "other: weights 1:3, equal channel groups: farthest share from its weight"
    ]


def test_faults_of_an_open_door_and_of_bursts(report: Report) -> None:
    line = {"event": "idle", "kicks": 1000, "faults": 0, "burst": 100, "rest_ms": 6}
    sched._idle(report, "sim", [line | {"what": "unmanaged", "faults": 1}, line | {"what": "bursts", "faults": 11}])
    assert missed(report, "page faults for a million rings")
    assert missed(report, "page faults for a burst")


STRESS: list[Line] = [
    {"event": "steps", "done": {"hold": 3}, "never": [], "refused": {}, "killed": 2, "stuck": []},
    {"event": "left", "machine": "sim", "used": 0, "objects": 0},
    {"event": "checks", "lockdep": True, "leaks": ""},
    {"event": "references", "nvidia": 1},
    {"event": "worker", "submitted": 100, "finished": 100, "exit": 0},
    LOG,
]


@pytest.mark.parametrize(
    ("event", "more", "word"),
    [
        ("steps", {"never": ["reload"]}, "never carried out"),
        ("steps", {"stuck": ["12 fault"]}, "stuck"),
        ("left", {"objects": 1}, "objects that were left"),
        ("checks", {"lockdep": False}, "lockdep watched"),
        ("checks", {"leaks": "unreferenced object 0xffff"}, "kmemleak"),
        ("references", {"nvidia": 2}, "references to the driver"),
        ("worker", {"finished": 99}, "of them lost"),
        ("worker", {"exit": 1}, "that failed"),
        ("log", {"faults": 1}, "oops"),
    ],
)
def test_what_a_stress_run_leaves_is_a_miss(
    report: Report, monkeypatch: pytest.MonkeyPatch, event: str, more: Line, word: str
) -> None:
    """The guest's words are given; the rows are those of a run."""
    lines = [line | more if line["event"] == event else line for line in STRESS]
    monkeypatch.setattr(stress, "run", lambda *_, **__: lines)
    stress.measure(report, SIM, 1, 1)
    assert [row.what for row in report.missed if word in row.what] == [row.what for row in report.missed]
    assert len(report.missed) == 1
