# SPDX-License-Identifier: Apache-2.0
"""Reflexes: rows of classes that hold the lower for the higher, and nobody while no one else wants the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import row
from tests.vm.guest.sched_tools import (
    ACTIVE,
    GATED,
    IDLE,
    PAUSED,
    REFLEX,
    Worker,
    family,
    of,
    progress,
    run_of,
    runs,
    shares,
    worker,
)

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
# keeps the GPU busy, and rings its doorbell every 30 ms or so
BUSY = ("nvbackground", "--us", 2000, "--depth", 64)
LOW, MEDIUM, HIGH = genl.DETSHARE_LEVEL_LOW, genl.DETSHARE_LEVEL_MEDIUM, genl.DETSHARE_LEVEL_HIGH


@pytest.fixture
def classes(family: genl.DetShare) -> Iterator[genl.DetShare]:
    """`high` goes before `low`, which is paused after 3 ms."""
    family.class_set("high", 10, slice_us=20_000, level=HIGH, linger_us=200_000)
    family.class_set("low", 1, slice_us=50, level=LOW, deadline_us=3000)
    return family


def join(family: genl.DetShare, worker: Worker, name: str) -> None:
    assert row(family.sched_set(worker.pid, name))["tsgs_failed"] == 0


def test_rows_give_slices_and_levels(classes: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--period-ms", 50)
    join(classes, one, "low")
    assert [(each["slice_us"], each["level"]) for each in one.rows()] == [(50, 0)]
    # what a row says anew holds for who is there
    classes.class_set("low", 1, slice_us=100, level=LOW)
    until(lambda: one.rows()[0]["slice_us"] == 100)
    # an order's own slice goes before its class's
    classes.sched_set(one.pid, "low", 300)
    assert one.rows()[0]["slice_us"] == 300
    classes.sched_del(one.pid)
    assert [(each["slice_us"], each["level"]) for each in one.rows()] == [(2048, 1)]


def test_a_lower_class_is_held_while_a_higher_one_is_active(classes: genl.DetShare, worker: Workers) -> None:
    low = worker("nvbackground")
    join(classes, low, "low")
    assert progress(low) > 100_000, "nobody else wants the GPU"
    high = worker(*BUSY)
    join(classes, high, "high")
    until(lambda: run_of(classes, low)["state"] == PAUSED)
    found = run_of(classes, low)
    assert (found["reasons"], found["class"], found["rank"]) == (REFLEX, "low", 1)
    assert run_of(classes, high)["state"] == ACTIVE
    assert progress(low) == 0
    assert progress(high) > 100_000
    high.end()
    until(lambda: low.off() == 0)
    assert progress(low) > 100_000


def test_a_class_that_rests_holds_nobody(classes: genl.DetShare, worker: Workers) -> None:
    """The higher one works for a moment, every 40 ms: in between the lower one has the GPU."""
    classes.class_set("high", 10, slice_us=20_000, level=HIGH, linger_us=2000)
    low = worker("nvbackground")
    join(classes, low, "low")
    (alone,) = shares(low, seconds=2)  # what this guest gets done in so long
    high = worker("nvlatency", "--us", 200, "--period-ms", 40)
    join(classes, high, "high")
    for _ in range(3):  # who is held gets nothing in any of them; a host that stands still takes some
        before = run_of(classes, high)["kicks"]
        used = shares(low, high, seconds=2)
        kicks = run_of(classes, high)["kicks"] - before
        if used[0] > 0.6 * alone:
            break
    assert used[0] > 0.6 * alone
    assert used[1] > 4_000
    assert 10 <= kicks <= 55, "one caught kick for each burst"
    high.end()
    until(lambda: run_of(classes, low)["reasons"] == 0)


def test_who_has_no_class_holds_nobody_and_is_not_held(classes: genl.DetShare, worker: Workers) -> None:
    one, low = worker("nvbackground"), worker("nvbackground")
    join(classes, low, "low")
    time.sleep(0.1)
    assert [each["reasons"] for each in runs(classes)] == [0, 0]
    high = worker("nvlatency", "--period-ms", 1)
    join(classes, high, "high")
    until(lambda: run_of(classes, low)["reasons"] == REFLEX)
    assert run_of(classes, one)["reasons"] == 0
    assert progress(one) > 50_000


def test_one_class_alone_costs_nothing(classes: genl.DetShare, worker: Workers) -> None:
    """Nothing is armed, nothing is sampled: no fault."""
    one, other = worker("nvlatency", "--period-ms", 2), worker("nvlatency", "--period-ms", 2)
    for each in (one, other):
        join(classes, each, "low")
    before = [run_of(classes, each)["faults"] for each in (one, other)]
    time.sleep(0.5)
    assert [run_of(classes, each)["faults"] for each in (one, other)] == before


def test_of_three_classes_the_highest_active_one_counts(classes: genl.DetShare, worker: Workers) -> None:
    classes.class_set("middle", 5, linger_us=200_000, deadline_us=3000)
    low, middle, high = worker("nvbackground"), worker(*BUSY), worker(*BUSY)
    for each, name in ((low, "low"), (middle, "middle"), (high, "high")):
        join(classes, each, name)
    until(lambda: [run_of(classes, each)["state"] for each in (low, middle)] == [PAUSED, PAUSED])
    high.end()
    until(lambda: run_of(classes, middle)["reasons"] == 0)
    until(lambda: middle.off() == 0)
    assert progress(middle) > 100_000
    assert run_of(classes, low)["state"] == PAUSED
    middle.end()
    until(lambda: run_of(classes, low)["reasons"] == 0)


def test_who_is_held_by_order_holds_nobody(classes: genl.DetShare, worker: Workers) -> None:
    low, high = worker("nvbackground"), worker(*BUSY)
    join(classes, low, "low")
    join(classes, high, "high")
    until(lambda: run_of(classes, low)["state"] == PAUSED)
    classes.hold_set(gate=True, pause=True, **of(high))
    until(lambda: run_of(classes, low)["reasons"] == 0)
    classes.hold_del(**of(high))
    until(lambda: run_of(classes, low)["state"] == PAUSED)


def test_a_gate_without_a_deadline_leaves_queued_work_alone(classes: genl.DetShare, worker: Workers) -> None:
    # a slice in which a kernel fits: in 50 us beside a busy neighbour none ends, and nobody launches the next
    classes.class_set("low", 1, slice_us=1000, level=LOW)
    low = worker("nvlatency", "--us", 100, "--period-ms", 1)
    high = worker(*BUSY)
    join(classes, low, "low")
    join(classes, high, "high")
    until(lambda: run_of(classes, low)["state"] == GATED)
    time.sleep(0.1)
    assert (run_of(classes, low)["waiting"], low.off(), progress(low)) == (1, 0, 0)


def test_rows_that_are_taken_away_hold_nobody(classes: genl.DetShare, worker: Workers) -> None:
    low, high = worker("nvbackground"), worker(*BUSY)
    join(classes, low, "low")
    join(classes, high, "high")
    until(lambda: run_of(classes, low)["state"] == PAUSED)
    classes.class_del("high")
    until(lambda: low.off() == 0)
    assert run_of(classes, low)["reasons"] == 0


def test_a_floor_is_a_floor(classes: genl.DetShare, worker: Workers) -> None:
    """Beside a higher class that never rests the lower one gets its part, and not much more."""
    classes.class_set("low", 1, slice_us=50, level=LOW, deadline_us=3000, floor_permille=100)
    low, high = worker("nvbackground"), worker(*BUSY)
    join(classes, low, "low")
    join(classes, high, "high")
    time.sleep(1)
    for _ in range(3):  # a wrong floor is wrong in each of them; a host that stands still in one
        used = shares(low, high, seconds=4)
        if 0.09 < used[0] / sum(used) < 0.14:
            break
    assert 0.09 < used[0] / sum(used) < 0.14
    # and no part without one
    classes.class_set("low", 1, slice_us=50, level=LOW, deadline_us=3000)
    until(lambda: low.off() > 0)
    assert progress(low) == 0


def test_reflexes_stay_when_who_wrote_them_goes(worker: Workers) -> None:
    low, high = worker("nvbackground"), worker("nvlatency", "--period-ms", 1000)
    with genl.DetShare() as made:
        made.class_set("high", 10, linger_us=200_000)
        made.class_set("low", 1, deadline_us=3000)
        join(made, low, "low")
        join(made, high, "high")
        until(lambda: run_of(made, high)["state"] == IDLE)
    high.end()
    high = worker(*BUSY)
    with genl.DetShare() as made:
        join(made, high, "high")
    until(lambda: low.off() > 0)
    high.end()
    until(lambda: low.off() == 0)
    with genl.DetShare() as made:
        for name in ("high", "low"):
            made.class_del(name)
