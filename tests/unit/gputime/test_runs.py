# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core.gputime import Run, Switch
from detshare.ctl.gputime.runs import RunBook


def start(at: int, pid: int, context: int = 0) -> Switch:
    return Switch(at, pid, context or pid, starts=True)


def end(at: int, pid: int, context: int = 0) -> Switch:
    return Switch(at, pid, context or pid, starts=False)


@st.composite
def timelines(draw: st.DrawFn) -> list[tuple[Run, int]]:
    """Runs of contexts (run, context) that follow each other, as a GPU makes them; one PID has several contexts."""
    now, made = draw(st.integers(0, 1 << 60)), []
    for context in draw(st.lists(st.integers(0, 5), max_size=40)):
        begin = now + draw(st.integers(1, 100_000))
        now = begin + draw(st.integers(1, 20_000_000))
        made.append((Run(1000 + context // 2, begin, now), context))
    return made


def switches(timeline: list[tuple[Run, int]]) -> list[Switch]:
    return [
        switch
        for run, context in timeline
        for switch in (start(run.start_ns, run.pid, context), end(run.end_ns, run.pid, context))
    ]


def parts(draw: st.DataObject, records: list[Switch]) -> list[list[Switch]]:
    """The same records in several readings."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(records)), max_size=5)))
    return [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]


@given(timelines(), st.data())
def test_runs_come_back_whatever_the_readings_and_the_order_within_one(
    timeline: list[tuple[Run, int]], data: st.DataObject
) -> None:
    book = RunBook()
    closed = [run for part in parts(data, switches(timeline)) for run in book.feed(data.draw(st.permutations(part)))]
    assert closed == [run for run, _context in timeline]
    assert book.open_runs(1 << 62) == []


@given(timelines(), st.data())
def test_missing_ends_close_at_the_next_start_of_another(timeline: list[tuple[Run, int]], data: st.DataObject) -> None:
    records = [switch for switch in switches(timeline) if switch.starts]
    book = RunBook()
    closed = [run for part in parts(data, records) for run in book.feed(part)]
    following = list(pairwise(timeline))
    assert closed == [
        Run(run.pid, run.start_ns, later.start_ns)
        for (run, context), (later, next_context) in following
        if context != next_context
    ]
    last = timeline[-1][0] if timeline else None
    assert book.open_runs(1 << 62) == ([Run(last.pid, last.start_ns, 1 << 62)] if last else [])


@given(st.lists(st.builds(Switch, st.integers(0, 50), st.integers(1, 3), st.integers(1, 3), st.booleans())), st.data())
def test_anything_gives_runs_that_do_not_overlap(records: list[Switch], data: st.DataObject) -> None:
    """Records that are dropped, doubled or late, in any readings."""
    book = RunBook()
    closed = []
    for part in parts(data, records):
        closed += book.feed(part)
        if data.draw(st.booleans()):
            book.lost()
    runs = closed + book.open_runs(100)
    assert all(run.start_ns < run.end_ns for run in runs)
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(runs))
    assert {(run.start_ns, run.pid) for run in runs} <= {(r.at_ns, r.pid) for r in records if r.starts}


def test_a_run_goes_on_until_its_end_comes() -> None:
    book = RunBook()
    assert book.feed([start(100, 7)]) == []
    assert book.open_runs(250) == [Run(7, 100, 250)]
    assert book.open_runs(100) == []
    assert book.feed([end(300, 7)]) == [Run(7, 100, 300)]
    assert book.open_runs(400) == []


def test_contexts_of_one_program_are_runs_of_their_own() -> None:
    assert RunBook().feed([start(0, 7, 1), start(50, 7, 2), end(90, 7, 2)]) == [Run(7, 0, 50), Run(7, 50, 90)]


def test_an_end_without_a_start_says_nothing() -> None:
    book = RunBook()
    assert book.feed([end(10, 7), start(20, 8), end(25, 7), end(30, 8), end(31, 8)]) == [Run(8, 20, 30)]


def test_a_run_whose_end_was_lost_is_left_out() -> None:
    book = RunBook()
    book.feed([start(0, 7)])
    book.lost()
    assert book.feed([end(9_000, 7), start(9_100, 7), end(9_200, 7)]) == [Run(7, 9_100, 9_200)]
    assert book.feed([start(10_000, 7), start(20_000, 7), end(20_500, 7)]) == [Run(7, 20_000, 20_500)]


def test_a_start_that_comes_too_late_changes_nothing() -> None:
    book = RunBook()
    assert book.feed([start(100, 7), end(200, 7)]) == [Run(7, 100, 200)]
    assert book.feed([start(150, 8), end(180, 8), start(300, 9)]) == []
    assert book.feed([start(250, 8), end(260, 8), end(400, 9)]) == [Run(9, 300, 400)]
