# SPDX-License-Identifier: Apache-2.0
"""What a meter sums up as runs come is what summing up all of its runs anew would give."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core.gputime import SLOT_S, GpuTime, Run, Switch
from detshare.ctl.gputime import meter as meters
from detshare.ctl.gputime.meter import KEEP_NS, RESTORE_NS, Meter, useful_ns

SLOT_NS = round(SLOT_S * 1e9)
LENGTHS = st.sampled_from((1, RESTORE_NS, RESTORE_NS + 1, 2_000_000, 40_000_000, SLOT_NS, 700_000_000, KEEP_NS + 5))
GAPS = st.sampled_from((0, 85_000, 1_000_000, 60_000_000, 900_000_000, 2 * KEEP_NS))


def summed(pid: int, runs: list[Run], span_ns: int, now_ns: int) -> tuple[object, ...]:
    """Everything but what only the meter knows, from the runs of one program alone."""
    lengths = [run.end_ns - run.start_ns for run in runs]
    gaps = [other.start_ns - one.end_ns for one, other in pairwise(runs)]
    slots = max(1, span_ns // SLOT_NS)
    history = []
    for begin in range(now_ns - slots * SLOT_NS, now_ns, SLOT_NS):
        had = sum(max(0, min(run.end_ns, begin + SLOT_NS) - max(run.start_ns, begin)) for run in runs)
        history.append(had / SLOT_NS)
    return (
        round(span_ns / 1e9, 3),
        round(sum(lengths) / span_ns, 4),
        round(sum(map(useful_ns, runs)) / span_ns, 4),
        round(len(runs) * 1e9 / span_ns, 1),
        round(median(lengths) / 1000, 1) if runs else 0.0,
        round(median(gaps) / 1000, 1) if gaps else 0.0,
        pytest.approx(tuple(history), abs=0.0005001),
    )


def said(time: GpuTime) -> tuple[object, ...]:
    return time.seconds, time.share, time.useful, time.switches_s, time.run_us, time.gap_us, time.history


def check(meter: Meter, began_ns: int, closed: list[Run]) -> None:
    """Against the meter's own runs, and the last that each program could use."""
    span_ns = min(KEEP_NS, meter.now_ns - began_ns)
    by_pid: dict[int, list[Run]] = defaultdict(list)
    for run in meter.since(meter.now_ns - span_ns) if span_ns > 0 else ():
        by_pid[run.pid].append(run)
    found = meter.times({9: 100.0})
    assert found.keys() == ({*by_pid, 9} if span_ns > 0 else set())
    for pid, time in found.items():
        assert said(time) == summed(pid, by_pid[pid], span_ns, meter.now_ns)
    for pid in {run.pid for run in closed}:
        worked = [run.end_ns for run in (*closed, *meter.open()) if run.pid == pid and useful_ns(run)]
        assert meter.worked_ns(pid) == (worked[-1] if worked else None)


@given(
    st.integers(0, 1 << 60),
    st.lists(st.tuples(st.integers(1, 3), LENGTHS, GAPS, st.booleans(), st.booleans()), min_size=1, max_size=40),
)
def test_times_are_those_of_all_runs_anew(began: int, steps: list[tuple[int, int, int, bool, bool]]) -> None:
    meter, now = Meter("GPU-1"), began + 1
    began = now
    meter.feed([], now)
    closed: list[Run] = []
    for pid, length, gap, looks, early in steps:
        closed += meter.feed([Switch(now, pid, pid, starts=True)], now)
        if early:  # a look while it runs
            meter.feed([], now + length // 2)
            check(meter, began, closed)
        now += length
        closed += meter.feed([Switch(now, pid, pid, starts=False)], now)
        if looks:
            check(meter, began, closed)
        now += gap
        meter.feed([], now)
    check(meter, began, closed)


def test_more_runs_than_are_kept_are_forgotten_by_the_sums_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "MOST_RUNS", 10)
    monkeypatch.setattr(meters, "_MOST_NEW", 4)
    meter, now = Meter("GPU-1"), 1_000_000_000
    meter.feed([], now)
    closed: list[Run] = []
    for number in range(35):
        pid = 1 + number % 2
        records = [Switch(now, pid, pid, starts=True), Switch(now + 2_000_000, pid, pid, starts=False)]
        now += 3_000_000
        closed += meter.feed(records, now)
        assert len(meter._new) <= 4
    assert meter.times()[1].switches_s == pytest.approx(5 / 0.105, abs=0.1)
    check(meter, 1_000_000_000, closed)


def test_the_log_is_sure_of_everybody_from_the_first_run_on_but_for_losses() -> None:
    meter = Meter("GPU-1")
    meter.feed([], 1_000)
    assert not meter.sure  # whoever runs alone since before has left no record
    meter.feed([Switch(2_000, 7, 7, starts=True)], 3_000)
    assert meter.sure
    meter.feed([], 4_000, dropped=1)
    assert not meter.sure
    meter.feed([Switch(5_000, 8, 8, starts=True)], 6_000, dropped=1)
    assert meter.sure
