# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.bench.process import Program, ProgramError
from tests.patience import LONG_S

FAKE = Path(__file__).resolve().parent / "fake_workload.py"


def start(how: str, **env: str) -> Program:
    return Program(how, [sys.executable, str(FAKE), how], env)


def test_a_workload_gets_ready_gives_windows_and_ends_with_a_summary() -> None:
    kept: list[dict[str, Any]] = []
    with Program("fast", [sys.executable, str(FAKE), "fast"], record=kept.append) as program:
        ready = program.ready(LONG_S)
        assert ready["pid"] == program.pid
        assert program.programs == [program.pid]
        begin = time.monotonic()
        time.sleep(0.5)
        end = time.monotonic()
        windows = program.windows(begin, end)
        assert windows
        for window in windows:
            assert begin <= window["t0"] < window["t1"] <= end
            assert len(window["latency_us"]) == window["count"]
            assert window["items"] == 8 * window["count"]
            assert set(window["latency_us"]) == {5000.0}
        summary = program.stop()
    assert summary["count"] >= sum(window["count"] for window in program.lines("window"))
    assert summary["items"] == 8 * summary["count"]
    assert {line["of"] for line in kept} == {program.pid}
    assert kept[0]["event"] == "ready"
    assert not program.alive


def test_seconds_end_a_workload_by_itself() -> None:
    with start("fast", SECONDS_="0.3") as program:
        summary = program.wait_for("summary", LONG_S)
        assert summary["seconds"] >= 0.3


def test_programs_are_those_of_the_ready_line() -> None:
    with start("parent") as program:
        program.ready(LONG_S)
        assert program.programs == [11, 12]


def test_a_window_longer_than_the_slot_is_taken_whole() -> None:
    with start("slow") as program:
        program.wait_for("window", LONG_S)
        begin = time.monotonic()
        end = begin + 0.05
        assert program.windows(begin, end, patience=0.0) == []
        [window] = program.windows(begin, end, patience=5.0)
        assert window["t0"] < end
        assert window["t1"] > begin


def test_a_held_program_gives_nothing_until_it_goes_on() -> None:
    with start("fast") as program:
        program.wait_for("window", LONG_S)
        program.hold()
        time.sleep(0.1)
        held = time.monotonic()
        time.sleep(0.4)
        assert program.windows(held, time.monotonic()) == []
        program.go_on()
        assert program.wait_for("window", 5, held, "t1")["t1"] - held > 0.3
        program.hold()
        program.stop()  # also of a held program


def test_a_program_that_dies_is_reported_with_its_last_words() -> None:
    with start("dies") as program, pytest.raises(ProgramError, match=r"ended before .*no GPU for this test"):
        program.ready(LONG_S)


def test_a_program_that_is_never_ready_is_reported_and_killed() -> None:
    program = start("deaf")
    program.wait_for("hello", LONG_S)
    with pytest.raises(ProgramError, match=r"did not say 'ready' within 0.2 s"):
        program.ready(0.2)
    assert program.end(timeout=0.2) == -9
    assert not program.alive


def test_an_end_without_summary_is_an_error() -> None:
    program = start("no-summary")
    program.ready(LONG_S)
    with pytest.raises(ProgramError, match="0 summaries"):
        program.stop()


def test_lines_since() -> None:
    with start("fast") as program:
        first = program.wait_for("window", LONG_S)
        later = program.wait_for("window", LONG_S, first["t1"], "t0")
        assert later["t0"] >= first["t1"]
        assert first not in program.lines("window", first["t1"], "t0")
