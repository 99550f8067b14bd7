# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core.driver import NotAllowed
from detshare.ctl.core.gputime import Run
from detshare.ctl.gputime import chrome, lanes
from detshare.ctl.gputime.meter import RESTORE_NS
from detshare.ctl.gputime.recording import NoRecording, read, record, write
from tests.unit.gputime.recordings import FIRST, SECOND, MadeDriver, MadeLog, busy, end, pauses, recording, start


def test_logs_of_all_gpus_are_recorded_with_the_programs_names() -> None:
    first = MadeLog([[start(100, 7), end(250, 7)], [start(300, 8)], [end(900, 8), start(950, 7)]], 1_000)
    second = MadeLog([[start(5_000, 7)], [], [end(5_500, 7)]], 9_000, begins_ns=4_000)
    heard: list[int] = []
    driver = MadeDriver({"GPU-1": first, "GPU-2": second}, {7: "/usr/bin/python serve.py"})
    made = record(driver, [FIRST, SECOND], pauses(3), heard.append)
    assert [gpu.runs for gpu in made.gpus] == [
        (Run(7, 100, 250), Run(8, 300, 900), Run(7, 950, 1_000)),  # the last one still went on
        (Run(7, 5_000, 5_500),),
    ]
    assert [(gpu.begin_ns, gpu.end_ns) for gpu in made.gpus] == [(1, 1_000), (4_000, 9_000)]
    assert heard == [1, 1, 3]
    assert (made.name(7), made.name(8), made.proof) == ("python serve.py", "", "unit")
    assert first.closed
    assert second.closed


def test_a_clock_that_only_records_tell_begins_as_long_ago_as_it_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([5_000, 5_400])
    monkeypatch.setattr("detshare.ctl.gputime.recording.time.monotonic_ns", lambda: next(moments))
    log = MadeLog([[start(99_000, 7), end(99_700, 7), start(99_800, 8)]], 100_000, begins_ns=0)
    (gpu,) = record(MadeDriver({"GPU-1": log}), [FIRST], pauses(1), lambda _: None).gpus
    assert (gpu.begin_ns, gpu.end_ns) == (99_600, 100_000)
    assert gpu.runs == (Run(7, 99_600, 99_700), Run(8, 99_800, 100_000))


def test_a_log_without_a_record_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([5_000, 5_400])
    monkeypatch.setattr("detshare.ctl.gputime.recording.time.monotonic_ns", lambda: next(moments))
    log = MadeLog([], 0, begins_ns=0)
    (gpu,) = record(MadeDriver({"GPU-1": log}), [FIRST], pauses(1), lambda _: None).gpus
    assert (gpu.end_ns - gpu.begin_ns, gpu.runs) == (400, ())


def test_no_run_goes_over_records_that_were_lost() -> None:
    log = MadeLog([[start(100, 7)], [end(900, 7), start(950, 8), end(980, 8)]], 1_000, drops=(2, 2))
    made = record(MadeDriver({"GPU-1": log}), [FIRST], pauses(2), lambda _: None)
    assert made.gpus[0].runs == (Run(8, 950, 980),)
    assert made.gpus[0].dropped == 2


def test_a_log_that_is_refused_leaves_none_open() -> None:
    log = MadeLog([], 10)
    with pytest.raises(NotAllowed, match="for root"):
        record(MadeDriver({"GPU-1": log}), [FIRST, SECOND], pauses(1), lambda _: None)
    assert log.closed


RUNS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 10**7), st.integers(1, 10**7)), max_size=30)


def made_of(parts: list[tuple[int, int, int]]) -> list[Run]:
    now, runs = 1_000, []
    for pid, gap, length in parts:
        runs.append(Run(pid, now + gap, now + gap + length))
        now += gap + length
    return runs


@given(RUNS, st.dictionaries(st.integers(1, 5), st.text(max_size=20), max_size=3), st.integers(0, 9))
def test_a_file_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int, int]], names: dict[int, str], dropped: int
) -> None:
    whole = recording(made_of(parts), 1.0, names, dropped)
    path = tmp_path_factory.mktemp("file") / "a.jsonl.gz"
    write(path, whole)
    assert read(path) == whole


def test_what_is_no_recording_is_said_to_be_none(tmp_path: Path) -> None:
    path, whole = tmp_path / "file", recording(busy(0.1, 100, [1]), 0.1)
    path.write_text("{}\n")
    with pytest.raises(NoRecording, match="gzip"):
        read(path)
    for text in ("", "x\n", "[]\n", "{}\n", json.dumps({"format": "detshare-timeline", "version": 99}) + "\n"):
        path.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(NoRecording):
            read(path)
    write(path, whole)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(NoRecording):
        read(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing")


@given(RUNS, st.floats(0, 0.5), st.floats(1e-6, 0.5))
def test_a_window_has_what_lies_in_it(parts: list[tuple[int, int, int]], begin: float, length: float) -> None:
    gpu = recording(made_of(parts), 1.0).gpus[0]
    window = gpu.window(begin, length)
    assert all(window.begin_ns <= r.start_ns < r.end_ns <= window.end_ns for r in window.runs)
    inside = sum(max(min(r.end_ns, window.end_ns) - max(r.start_ns, window.begin_ns), 0) for r in gpu.runs)
    assert sum(r.end_ns - r.start_ns for r in window.runs) == inside


def test_lanes_add_up() -> None:
    gpu = recording(busy(1.0, 1000, [7, 8]), 1.0).gpus[0]
    first, second = lanes.lanes(gpu)
    assert (first.pid, second.pid) == (7, 8)
    assert first.share == pytest.approx(0.5 * 0.915)
    assert (first.runs_s, first.run_us) == (500.0, 915.0)
    assert sum(run.end_ns - run.start_ns for run in first.restores) == 500 * RESTORE_NS
    gaps = lanes.switches(gpu)
    assert gaps.share == pytest.approx(0.085, abs=1e-3)
    assert lanes.switches(recording([Run(1, 2_000, 3_000), Run(2, 10**6, 10**7)], 1.0).gpus[0]).runs == ()  # idle


def test_chrome_has_a_process_for_each_gpu_and_a_thread_for_each_program() -> None:
    whole = recording([Run(7, 2_000, 5_500), Run(8, 6_000, 7_000)], 1.0, {7: "/bin/serve --x"})
    events = json.loads(json.dumps(chrome.trace(whole)))["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {
        ("process_name", 0, 0): "GPU 0 NVIDIA H200",
        ("thread_name", 0, 7): "serve --x",
        ("thread_name", 0, 8): "PID 8",
    }
    runs = [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert runs == [("serve --x", 0, 7, 1.0, 3.5), ("PID 8", 0, 8, 5.0, 1.0)]
