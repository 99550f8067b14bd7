# SPDX-License-Identifier: Apache-2.0
"""Names as documented, both formats read by prometheus_client's own parsers, and no label without bounds."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.gputime import GpuTime, Mode, Pattern, Schedule
from detshare.ctl.core.observed import Observed, Requests
from detshare.ctl.core.snapshot import Account, AccountKind, ClassFloor, Kind, Level, Program, Snapshot, State, Tsg
from detshare.ctl.core.work import Activity, Parking, Spatial, Times
from detshare.ctl.daemon import metrics
from detshare.ctl.daemon.metric_names import NAMES, PROGRAM
from detshare.ctl.daemon.requests import Table
from detshare.ctl.daemon.threads import cpu_seconds
from tests.patience import until

ROOT = Path(__file__).resolve().parents[3]
OPEN = "application/openmetrics-text; version=1.0.0"
TIMES = Times(9, 2.048, 4.096, 8.192)
POLICY = {
    "name": "strict", "failed": "", "counts": {"calls": 9, "actions": 3, "refused": 1, "undone": 0},
    "standing": 2, "latency_p50_ms": 0.5, "latency_p99_ms": 4.0,
}  # fmt: skip


def tsg(handle: int) -> Tsg:
    return Tsg("GPU-1", 5, 7, handle, 1, 2, 3, Kind.COMPUTE, "GR0", (1,), (2,), 2048, Level.HIGH)


def program(pid: int, **more: Any) -> Program:
    given = {"klass": "high", "weight": 3, "memory_bytes": 1 << 30, "gpu_share": 0.5, "tsgs": (tsg(9),), **more}
    return Program(ProcessId(pid, pid), "python serve.py", "ann", "ab" * 32, State.RUNNING, gpus=("GPU-1",), **given)


def spatial() -> Spatial:
    return Spatial(
        132, "first 32", "held", 32, 25, None, False, False, 1, True, 1000, 7, 0, 0, 4, 1500.0, 0, kernels=TIMES,
        graphs=TIMES, delays=(0,) * 20 + (7,) + (0,) * 11,
    )  # fmt: skip


def machine(
    *programs: Program,
    accounts: tuple[Account, ...] = (),
    schedules: tuple[Schedule, ...] = (),
    floors: tuple[ClassFloor, ...] = (),
) -> Snapshot:
    gpu = Gpu("GPU-1", 0, "H100", "0000:01:00.0", 80 << 30)
    return Snapshot(
        "kmod",
        "driver",
        "580.0",
        1.0,
        0.004,
        (gpu,),
        programs,
        accounts=accounts,
        schedules=schedules,
        floors=floors,
        lapses=("a hook is missing",),
        closed=2,
        sensor_cpu_s=0.25,
    )


ON_ONE = GpuTime("GPU-1", 5.0, 0.3, 0.25, 50.0, 1730.0, 18_300.0, (0.3,), stalled_s=1.5)
ON_TWO = replace(ON_ONE, gpu="GPU-2", share=0.4, useful=0.4, stalled_s=0.0)
TURNS = Schedule("GPU-1", Mode.TURNS, Pattern.BURSTS, "train", slice_us=50)


RED = Account(AccountKind.TENANT, "red", None, 8 << 30, 1 << 30, 1 << 30, 2)
FULL = machine(
    program(1, spatial=spatial(), parking=Parking("parked", 4 << 30, 3 << 30, 0, 4 << 30, 2), limits=(RED,), refused=2),
    program(2, activity=Activity("active", kicks=5, used_us=2_000_000, waits=3, wait_ms=4.0, denied=1)),
    program(4, gpu_time=(ON_ONE, ON_TWO), floor=0.02, floors={"GPU-1": 0.02, "GPU-2": 0.1}),
    program(
        3,
        observed=Observed(1007, 5, 3, 4096, 1, 2, 1.5, partial=("a table was full",)),
        requests=Requests(200, 4.0, 0.01, 0.02, 0.1, 900),
    ),
    accounts=(RED,),
    schedules=(TURNS,),
    floors=(ClassFloor("low", 0.02), ClassFloor("low", 0.1, None, "GPU-2")),
)


def pages(seen: Snapshot | None = FULL) -> tuple[str, str]:
    counters = metrics.Counters(looks=7)
    counters.verbs["set-priority", "changed"] = 2
    made = metrics.registry(lambda: seen, counters, lambda: POLICY, Table())
    plain, plain_kind = metrics.render(made)
    full, open_kind = metrics.render(made, OPEN)
    assert plain_kind.startswith("text/plain; version=0.0.4")
    assert open_kind.startswith("application/openmetrics-text; version=1.0.0")
    return plain.decode(), full.decode()


def samples(seen: Snapshot | None = FULL) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in parse_open(pages(seen)[1])
        for each in family.samples
    }


def value(name: str, seen: Snapshot | None = FULL, **labels: str) -> list[float]:
    return [v for (found, has), v in samples(seen).items() if found == name and labels.items() <= dict(has).items()]


def test_a_full_machine_shows_every_name_that_there_is_and_no_other() -> None:
    families = {family.name: family for family in parse_open(pages()[1])}
    assert set(families) == {each.name for each in NAMES}
    for each in NAMES:
        family = families[each.name]
        assert (family.type, family.unit, family.documentation) == (each.kind, each.unit, each.help)
        for sample in family.samples:
            assert sample.name == each.sample
            assert set(sample.labels) == set(each.labels)


def test_both_formats_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "cpu_seconds", lambda: {"main": 1.5})
    monkeypatch.setattr(metrics, "time", SimpleNamespace(process_time=lambda: 2.5))
    plain, full = pages()
    assert full.endswith("# EOF\n")
    told = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in parse_plain(plain) for s in f.samples}
    assert told == samples()


def test_the_daemons_threads_have_their_cpu_time() -> None:
    ends = threading.Event()

    def work() -> None:
        begun = time.thread_time()
        while time.thread_time() < begun + 0.1:
            pass
        ends.wait()

    thread = threading.Thread(target=work, name="works")
    thread.start()
    pool = ThreadPoolExecutor(2, thread_name_prefix="jobs")
    try:
        pool.submit(len, "").result()
        until(lambda: cpu_seconds()["works"] >= 0.09)
        labels = {dict(labels)["thread"] for name, labels in samples() if name.endswith("thread_cpu_seconds_total")}
        assert {"main", "works", "jobs"} <= labels
        assert sum(cpu_seconds().values()) <= time.process_time() + 0.02 * len(cpu_seconds())  # ticks of 10 ms
    finally:
        ends.set()
        thread.join()
        pool.shutdown()
    assert "works" not in cpu_seconds()
    assert value("detshare_sensor_cpu_seconds_total") == [0.25]
    (before,) = value("detshare_daemon_cpu_seconds_total")
    assert 0.1 <= before <= time.process_time()


def test_values_are_in_the_units_of_their_names() -> None:
    assert value("detshare_program_slice_seconds", pid="1", level="high") == [0.002048]
    assert value("detshare_program_held_seconds_total") == [1.5]
    assert value("detshare_program_run_seconds", kind="graph", percentile="99") == [pytest.approx(8.192e-6)]
    assert value("detshare_program_gpu_seconds_total") == [2.0]
    assert value("detshare_program_wait_seconds_total") == [0.004]
    assert value("detshare_program_observed_launches_total", kind="graph") == [5]
    assert value("detshare_program_observed_copied_bytes_total") == [4096]
    assert value("detshare_program_observed_wait_seconds_total") == [0.0015]
    assert value("detshare_program_observed_partial") == [1]
    assert value("detshare_program_memory_limit_bytes", pid="1") == [8 << 30]
    assert value("detshare_policy_latency_seconds", percentile="99") == [0.004]
    assert value("detshare_policy_actions_total", result="done") == [3]


def test_gpu_time_is_told_for_each_gpu_and_goes_before_nvml() -> None:
    assert value("detshare_program_gpu_share", pid="4") == [0.4]
    assert value("detshare_program_gpu_share", pid="1") == [0.5]  # NVML's: nothing is known of its runs
    assert value("detshare_program_gpu_time_share", gpu="GPU-1") == [0.3]
    assert value("detshare_program_gpu_time_useful", gpu="GPU-1") == [0.25]
    assert value("detshare_program_gpu_switches_per_second", gpu="GPU-2") == [50]
    assert value("detshare_program_stalled_seconds", gpu="GPU-1") == [1.5]
    assert value("detshare_program_stalled_seconds", gpu="GPU-2") == [0]
    assert value("detshare_program_floor") == [0.02]
    assert value("detshare_program_gpu_floor", gpu="GPU-2") == [0.1]
    assert value("detshare_class_floor", **{"class": "low", "gpu": "each"}) == [0.02]
    assert value("detshare_class_floor", **{"class": "low", "gpu": "GPU-2"}) == [0.1]


def test_a_rotation_is_told_by_mode_holder_and_slice() -> None:
    assert value("detshare_schedule_mode", gpu="GPU-1", mode="turns") == [1]
    assert value("detshare_schedule_mode", gpu="GPU-1", mode="windows") == [0]
    assert value("detshare_schedule_holder", gpu="GPU-1", tenant="train") == [1]
    assert value("detshare_schedule_slice_seconds", gpu="GPU-1") == [50e-6]
    free = machine(schedules=(Schedule("GPU-1", Mode.FREE, Pattern.NONE),))
    assert value("detshare_schedule_holder", free) == value("detshare_schedule_slice_seconds", free) == []


def test_what_is_not_known_has_no_series() -> None:
    bare = machine(program(3, klass=None, weight=None, memory_bytes=None, gpu_share=None, tsgs=()))
    names = {name for name, _ in samples(bare) if name.startswith("detshare_program_")}
    assert names == {"detshare_program_state"}
    assert not [name for name, _ in samples(None) if name.startswith("detshare_program")]


def test_the_document_lists_exactly_these() -> None:
    told = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in (ROOT / "docs" / "use" / "metrics.md").read_text().splitlines()
        if line.startswith("| `detshare_")
    ]
    wanted = []
    for each in NAMES:
        mine = each.labels[: len(PROGRAM)] == PROGRAM
        labels = ["*program*"] if mine else []
        labels += [f"`{label}`" for label in (each.labels[len(PROGRAM) :] if mine else each.labels)]
        wanted.append((f"`{each.sample}`", each.kind, each.unit or "-", ", ".join(labels) or "-", each.help))
    assert told == wanted


def test_the_document_tells_the_bounds_that_there_are() -> None:
    text = " ".join((ROOT / "docs" / "use" / "metrics.md").read_text().split())
    assert f"At most {metrics.MOST_PROGRAMS} programs" in text
    assert f"with {metrics.MOST_TSGS} time slices each" in text
    assert f"At most {metrics.MOST_ACCOUNTS} tenants" in text


def test_series_are_bounded_however_many_programs_groups_and_limits_there_are() -> None:
    crowd = [program(pid, tsgs=tuple(map(tsg, range(50)))) for pid in range(1, 1001)]
    limits = tuple(Account(AccountKind.CGROUP, f"/job-{n}", None, 1) for n in range(1000))
    found = samples(machine(*crowd, accounts=limits))
    per_program = [name for name, _ in found if name.startswith("detshare_program_")]
    most = len(State) + metrics.MOST_TSGS + 4  # memory, share, weight, class
    assert len(per_program) == metrics.MOST_PROGRAMS * most
    assert sum(name == "detshare_account_limit_bytes" for name, _ in found) == metrics.MOST_ACCOUNTS
    assert value("detshare_programs_left_out", machine(*crowd)) == [1000 - metrics.MOST_PROGRAMS]
    assert value("detshare_programs", machine(*crowd)) == [1000]


def test_the_eldest_keep_their_series() -> None:
    crowd = [program(pid) for pid in range(1000, 0, -1)]
    pids = {int(dict(labels)["pid"]) for name, labels in samples(machine(*crowd)) if name.endswith("program_weight")}
    assert pids == set(range(1, metrics.MOST_PROGRAMS + 1))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200), st.text(max_size=80))
def test_no_command_line_breaks_the_page(command: str, user: str) -> None:
    hostile = dataclasses.replace(program(5), command=command, user=user)
    plain, full = pages(machine(hostile))
    assert len(list(parse_open(full))) == len(list(parse_plain(plain))) > 5
    for name, labels in samples(machine(hostile)):
        if name == "detshare_program_weight":
            assert len(dict(labels)["command"]) <= 64


@pytest.mark.parametrize(
    ("accept", "openly"),
    [
        ("", False), ("*/*", False), ("text/plain", False), (OPEN, True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
        ("application/openmetrics-text; version=0.0.1", True), ("application/openmetrics-text", True),
        ("application/openmetrics-text;q=0", False), ("application/openmetrics-text; version=9.0.0", False),
        ("application/openmetrics-text;q=nonsense", False), (";;;,,,=", False),
        ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;version=1.0.0;q=0.3", False),
        ("text/plain;version=1.0.0;q=0.9, application/openmetrics-text;version=1.0.0;q=0.3", True),
        ("application/openmetrics-text; version=\"1.0.0\" ; q=0.5, text/plain;q=0.5", True),
    ],
)  # fmt: skip
def test_the_format_is_the_one_that_was_asked_for(accept: str, openly: bool) -> None:
    body, kind = metrics.render(metrics.registry(lambda: FULL, metrics.Counters()), accept)
    assert kind.startswith("application/openmetrics-text") is openly
    assert body.endswith(b"# EOF\n") is openly
