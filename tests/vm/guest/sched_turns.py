# SPDX-License-Identifier: Apache-2.0
"""Turns among background tenants: all of them get on, one at a time, beside a foreground and without one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest import nvsim_work
from tests.vm.guest.kmod_tools import load, row, unload
from tests.vm.guest.nvsim_rm import Rm
from tests.vm.guest.nvsim_work import Doorbell
from tests.vm.guest.sched_hidden import Play, Programs, program, started
from tests.vm.guest.sched_states import Told
from tests.vm.guest.sched_tools import Worker, divided, family, gpu_times, progress, run_of, runs, shares, tsgs, worker

__all__ = ["family", "program", "worker"]  # fixtures

Workers = Callable[..., Worker]
LOW, HIGH = genl.DETSHARE_LEVEL_LOW, genl.DETSHARE_LEVEL_HIGH
TURN = genl.DETSHARE_HOLD_TURN
NONE, TURNS, WINDOWS = (
    genl.DETSHARE_TURN_MODE_NONE,
    genl.DETSHARE_TURN_MODE_TURNS,
    genl.DETSHARE_TURN_MODE_WINDOWS,
)
BUSY = ("nvbackground", "--us", 2000, "--depth", 64)
ENDLESS = ("nvbackground", "--endless")
SHORT_US = 50  # less than a restore takes
STALLS = 12
SHORT_S = 0.04
ENOUGH_US = 50_000  # of GPU time: more than anybody gets who is locked up, however slow the guest
ALONE = os.environ.get("DETSHARE_ALONE") == "1"  # nothing runs beside this guest, so how much is got is judged too


def least(alone_us: int) -> int:
    """What is to be got at least."""
    return alone_us if ALONE else ENOUGH_US


def write(family: genl.DetShare, floor: int = 20, turn_us: int | None = 100_000, idle_floor: int = 10) -> None:
    family.class_set("high", slice_us=20_000, level=HIGH)
    for name, rank, permille in (("low", 2, floor), ("idle", 1, idle_floor)):
        more = {} if turn_us is None else {"turn_us": turn_us, "turn_rank": rank}
        family.class_set(name, slice_us=SHORT_US, level=LOW, floor_permille=permille, **more)


@pytest.fixture
def classes(family: genl.DetShare) -> Iterator[genl.DetShare]:
    write(family)
    return family


def join(family: genl.DetShare, name: str, *members: Worker, weights: tuple[int, ...] = ()) -> None:
    for i, each in enumerate(members):
        weight = {"weight": weights[i], "slice_us": None} if weights else {}
        assert row(family.sched_set(each.pid, name, **weight))["tsgs_failed"] == 0


def turn(family: genl.DetShare) -> dict[str, int]:
    (gpu,) = (row(message) for message in family.gpu_get())
    return {key: value for key, value in gpu.items() if key.startswith("turn_")}


def test_rows_give_slices_and_levels(classes: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--period-ms", 50)
    join(classes, "low", one)
    assert [(each["slice_us"], each["level"]) for each in one.rows()] == [(SHORT_US, 0)]
    # what a row says anew holds for who is there
    classes.class_set("low", slice_us=100, level=LOW)
    until(lambda: one.rows()[0]["slice_us"] == 100)
    # an order's own slice goes before its class's
    classes.sched_set(one.pid, "low", 300)
    assert one.rows()[0]["slice_us"] == 300
    classes.sched_del(one.pid)
    assert [(each["slice_us"], each["level"]) for each in one.rows()] == [(2048, 1)]


def test_classes_without_turns_cost_nothing(family: genl.DetShare, worker: Workers) -> None:
    """Nothing is armed, nothing is sampled: no fault."""
    write(family, turn_us=None)
    high, low = worker("nvlatency", "--period-ms", 2), worker("nvlatency", "--period-ms", 2)
    join(family, "high", high)
    join(family, "low", low)
    before = [run_of(family, each)["faults"] for each in (high, low)]
    time.sleep(0.5)
    assert [run_of(family, each)["faults"] for each in (high, low)] == before


def test_one_with_turns_and_nobody_else_costs_nothing(classes: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--period-ms", 2)
    join(classes, "low", one)
    before = run_of(classes, one)["faults"]
    time.sleep(0.5)
    assert run_of(classes, one)["faults"] == before


def test_rows_stay_when_who_wrote_them_goes(worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    with genl.DetShare() as made:
        write(made)
        join(made, "low", *members)
    until(lambda: any(each.off() for each in members))
    with genl.DetShare() as made:
        for name in ("high", "low", "idle"):
            made.class_del(name)
    until(lambda: not any(each.off() for each in members))


def test_without_turns_two_with_short_slices_only_switch(family: genl.DetShare, worker: Workers) -> None:
    write(family, turn_us=None)
    members = worker(*ENDLESS), worker(*ENDLESS)
    join(family, "low", *members)
    time.sleep(0.1)
    assert shares(*members, seconds=0.3) == [0, 0]
    assert turn(family) == {"turn_mode": NONE}


def test_two_low_ones_share_by_turns(classes: genl.DetShare, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    join(classes, "low", *members)
    until(lambda: turn(classes)["turn_mode"] == TURNS)
    seen = set()
    begin = time.monotonic()
    before = gpu_times(*members)
    while seen < {each.pid for each in members} or time.monotonic() < begin + 4:
        seen.add(turn(classes)["turn_pid"])
        reasons = [run_of(classes, each)["reasons"] for each in members]
        assert set(reasons) <= {0, TURN}
        time.sleep(0.02)
    if ALONE:
        assert sum(gpu_times(*members)) - sum(before) > 3_200_000
    divided([pytest.approx(0.5, abs=0.05)] * 2, *members, least_s=2, most_s=10)


def test_they_get_on_beside_a_high_one_that_comes_in_bursts(classes: genl.DetShare, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    high = worker("nvlatency", "--us", 1000, "--period-ms", 20)
    join(classes, "low", *members)
    join(classes, "high", high)
    time.sleep(0.5)
    if ALONE:
        used = shares(*members, high, seconds=4)
        assert used[2] > 50_000
        assert sum(used) > 2_500_000
    (before,) = gpu_times(high)
    divided([pytest.approx(0.5, abs=0.05)] * 2, *members, least_s=2, most_s=10)
    assert turn(classes)["turn_mode"] == TURNS
    assert gpu_times(high)[0] > before


def test_weights_are_parts_of_the_time(classes: genl.DetShare, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS), worker(*ENDLESS)
    join(classes, "low", *members, weights=(1, 2, 3))
    time.sleep(0.7)
    divided([pytest.approx(weight / 6, rel=0.05) for weight in (1, 2, 3)], *members, least_s=6, most_s=60)


def test_who_rests_in_its_turn_has_the_rest_of_it_when_it_is_back(classes: genl.DetShare, worker: Workers) -> None:
    """It had a twentieth, and waited for a whole round after each rest."""
    members = worker(*ENDLESS), worker(*ENDLESS), worker("nvlatency", "--us", 10_000, "--period-ms", 20)
    join(classes, "low", *members)
    until(lambda: turn(classes)["turn_mode"] == TURNS)
    (before,) = gpu_times(members[2])
    if ALONE:  # on a slow processor it takes longer to launch again, and wants less
        often, seldom = pytest.approx(0.35, abs=0.1), pytest.approx(0.3, abs=0.14)
        divided([often, often, seldom], *members, least_s=3, most_s=20)
    divided([pytest.approx(0.5, abs=0.05)] * 2, *members[:2], least_s=2, most_s=10)
    assert gpu_times(members[2])[0] > before + ENOUGH_US


def test_a_stopped_program_with_queued_work_stops_nobody(classes: genl.DetShare, worker: Workers) -> None:
    stopped, other = worker(*BUSY), worker(*ENDLESS)
    join(classes, "low", stopped, other)
    time.sleep(0.3)
    stopped.process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(3):
            if ALONE:
                assert shares(other, seconds=0.6)[0] > 200_000
            until(lambda: progress(other) > ENOUGH_US)
    finally:
        stopped.process.send_signal(signal.SIGCONT)


def test_the_next_has_the_turn_when_its_holder_is_gone(classes: genl.DetShare, worker: Workers) -> None:
    write(classes, turn_us=1_000_000)
    members = [worker(*ENDLESS) for _ in range(3)]
    join(classes, "low", *members)
    until(lambda: turn(classes).get("turn_left_ms", 0) > 100)
    holder = turn(classes)["turn_pid"]
    (first,) = (each for each in members if each.pid == holder)
    others = [each for each in members if each.pid != holder]
    first.end()
    until(lambda: turn(classes).get("turn_pid") in [each.pid for each in others])
    until(lambda: sum(shares(*others, seconds=0.5)) > least(250_000))


def test_idle_ones_have_their_floor_beside_low_ones(classes: genl.DetShare, worker: Workers) -> None:
    write(classes, idle_floor=50)
    low, idle = worker(*ENDLESS), worker(*ENDLESS)
    join(classes, "low", low)
    join(classes, "idle", idle)
    time.sleep(0.5)
    divided([pytest.approx(0.95, abs=0.02), pytest.approx(0.05, abs=0.02)], low, idle, least_s=4, most_s=50)


@pytest.mark.parametrize("permille", [0, 20, 50, 100])
def test_who_never_rests_leaves_the_others_their_floor(classes: genl.DetShare, worker: Workers, permille: int) -> None:
    write(classes, floor=permille)
    low, high = worker(*ENDLESS), worker(*ENDLESS)
    join(classes, "low", low)
    join(classes, "high", high)
    until(lambda: turn(classes)["turn_mode"] == WINDOWS)
    time.sleep(0.3)
    parts = [pytest.approx(each / 1000, abs=0.01) for each in (permille, 1000 - permille)]
    divided(parts, low, high, least_s=5, most_s=100)
    high.end()
    until(lambda: turn(classes)["turn_mode"] == TURNS)
    until(lambda: progress(low) > least(200_000))


def test_a_launch_of_the_foreground_ends_what_is_beyond_the_floor(classes: genl.DetShare, worker: Workers) -> None:
    write(classes, floor=0)
    low, high = worker(*ENDLESS), worker(*ENDLESS)
    join(classes, "low", low)
    join(classes, "high", high)
    until(lambda: turn(classes)["turn_mode"] == WINDOWS)
    until(lambda: low.off() > 0)
    classes.hold_set(gate=True, pause=False, kind=genl.DETSHARE_KIND_PID, pid=high.pid)
    until(lambda: low.off() == 0)
    classes.hold_del(kind=genl.DETSHARE_KIND_PID, pid=high.pid)
    until(lambda: low.off() > 0)


def test_a_class_divides_its_floor_with_no_other_one(classes: genl.DetShare, worker: Workers) -> None:
    """One of the rank of `low` had a quarter of its floor beside three programs of that."""
    classes.class_set("batch", slice_us=SHORT_US, level=LOW, floor_permille=200, turn_us=100_000, turn_rank=2)
    batch, *low, high = (worker(*ENDLESS, "--quiet") for _ in range(5))
    join(classes, "batch", batch)
    join(classes, "low", *low)
    join(classes, "high", high)
    until(lambda: turn(classes)["turn_mode"] == WINDOWS)
    some = pytest.approx(0.006, abs=0.006)
    parts = [pytest.approx(0.2, abs=0.03), some, some, some, pytest.approx(0.78, abs=0.04)]
    divided(parts, batch, *low, high, least_s=5, most_s=30)


def gaps(client: int, count: int) -> Play:
    """Never rests, but for as many gaps: each ends as soon as that client is let go on in it."""
    rm = Rm.start()
    bell, channel = Doorbell(rm), started(rm)
    channel.submit(bell, nvsim_work.ENDLESS)
    yield {"clients": [rm.client]}
    launched = []
    for _ in range(count):
        time.sleep(0.7)
        channel.release()
        channel.wait()
        until(lambda: not any(each["off"] for each in tsgs() if each["client"] == client), pause=0)
        launched.append(time.monotonic_ns())
        channel.submit(bell, nvsim_work.ENDLESS)
    time.sleep(0.7)
    yield {"launched": launched}


def test_launches_of_the_foreground_end_its_gaps(classes: genl.DetShare, worker: Workers, program: Programs) -> None:
    """Each is caught by a fault at its doorbell, and takes the other off."""
    write(classes, floor=0)
    low = worker(*ENDLESS)
    high = program(gaps, low.ready["client"], 5)
    join(classes, "low", low)
    classes.sched_set(high.pid, "high")
    until(lambda: turn(classes)["turn_mode"] == WINDOWS)
    until(lambda: low.off() > 0)

    def kicks() -> int:
        return sum(each["kicks"] for each in runs(classes) if each["pid"] == high.pid)

    before = kicks()
    with Told() as told:
        launched = high.ask()["launched"]
        lines = [line for line in told.lines() if f"pid={low.pid} " in line]
    assert kicks() - before >= 5
    assert len([line for line in lines if line.startswith("paused")]) >= 5
    assert len([line for line in lines if line.startswith("resumed")]) >= 5
    paused = [int(line.partition("when=")[2].split()[0]) for line in lines if line.startswith("paused")]
    took = [min((at - begin for at in paused if at > begin), default=10**12) for begin in launched]
    assert not ALONE or min(took) < 50_000_000, took


def stalls() -> Play:
    """Never rests, but for a moment whenever it is asked."""
    rm = Rm.start()
    bell, channel = Doorbell(rm), started(rm)
    channel.submit(bell, nvsim_work.ENDLESS)
    yield {"clients": [rm.client]}
    while True:
        channel.release()
        began = time.monotonic()
        channel.wait()
        time.sleep(0.01)
        channel.submit(bell, nvsim_work.ENDLESS)
        yield {"seconds": time.monotonic() - began}


def test_a_stall_of_the_foreground_ends_no_windows(classes: genl.DetShare, worker: Workers, program: Programs) -> None:
    """As a server's garbage collection: others have the gap, and no turns beside it when it works again."""
    write(classes, floor=0)
    low, high = worker(*ENDLESS), program(stalls)
    join(classes, "low", low)
    classes.sched_set(high.pid, "high")
    short, ended = 0, 0
    for _ in range(10 * STALLS):
        until(lambda: turn(classes)["turn_mode"] == WINDOWS)
        time.sleep(0.3)
        took = high.ask()["seconds"]
        end, seen = time.monotonic() + 0.3, set[int]()
        while time.monotonic() < end:
            seen.add(turn(classes)["turn_mode"])
            time.sleep(0.005)
        # by its own clock: a longer one is a gap in two measurements, and ends windows by right
        if took < SHORT_S:
            short, ended = short + 1, ended + (TURNS in seen)
        if short == STALLS:
            break
    else:
        pytest.skip(f"the processor is too slow: {short} of {10 * STALLS} stalls were short")
    # one of them may meet two measurements, or the quiet that another has left in one
    assert ended <= STALLS / 2


def test_launches_of_a_foreground_that_leaves_gaps_meet_no_fault(classes: genl.DetShare, worker: Workers) -> None:
    """Nor is it overlooked that it leaves none any more, or leaves some again."""
    write(classes)
    low, high = worker(*ENDLESS), worker("nvlatency", "--us", 500, "--period-ms", 20)
    join(classes, "low", low)
    join(classes, "high", high)

    def unseen() -> bool:
        caught, used = run_of(classes, high)["kicks"], gpu_times(high)[0]
        until(lambda: gpu_times(high)[0] - used > 10 * 500)
        return run_of(classes, high)["kicks"] == caught

    until(unseen)
    assert turn(classes)["turn_mode"] == TURNS
    other = worker(*ENDLESS)
    join(classes, "high", other)
    until(lambda: turn(classes)["turn_mode"] == WINDOWS)
    until(lambda: low.off() > 0)
    other.end()
    until(lambda: turn(classes)["turn_mode"] == TURNS)
    until(unseen)


def test_programs_of_one_turn_have_slices_that_outlast_a_switch(classes: genl.DetShare, worker: Workers) -> None:
    several, alone = worker("nvbackground", "--endless", "--tsgs", 2), worker(*ENDLESS)
    join(classes, "low", several, alone)
    assert [each["slice_us"] for each in several.rows()] == [1000, 1000]
    # the one was there, and busy, before it had a class
    until(lambda: [each["slice_us"] for each in alone.rows()] == [SHORT_US])
    until(lambda: turn(classes)["turn_mode"] == TURNS)
    # two switches in 2 ms
    divided([pytest.approx(0.45, abs=0.075), pytest.approx(0.55, abs=0.075)], several, alone, least_s=2, most_s=20)


def test_who_is_not_managed_goes_on(classes: genl.DetShare, worker: Workers) -> None:
    members, other = [worker(*ENDLESS), worker(*ENDLESS)], worker(*ENDLESS)
    join(classes, "low", *members)
    until(lambda: any(each.off() for each in members))
    for _ in range(5):
        assert progress(other, 0.2) > (100_000 if ALONE else 0)
        assert other.off() == 0


def test_they_get_on_beside_one_that_is_not_managed(classes: genl.DetShare, worker: Workers) -> None:
    """With slices shorter than a switch they would never begin; when it rests they are short again."""
    low, other = worker(*ENDLESS), worker(*BUSY)
    join(classes, "low", low)
    until(lambda: low.rows()[0]["slice_us"] >= 1000)
    until(lambda: progress(low) > ENOUGH_US)
    other.end()
    until(lambda: low.rows()[0]["slice_us"] == SHORT_US)


def test_one_that_is_not_managed_and_rests_changes_nothing(classes: genl.DetShare, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    worker("nvlatency", "--us", 200, "--period-ms", 60_000)
    join(classes, "low", *members)
    until(lambda: any(each.off() for each in members))
    until(lambda: {each["slice_us"] for one in members for each in one.rows()} == {SHORT_US})
    for _ in range(20):
        time.sleep(0.05)
        assert {each["slice_us"] for one in members for each in one.rows()} == {SHORT_US}


def test_the_module_goes_in_mid_turn(worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    with genl.DetShare() as link:
        write(link)
        join(link, "low", *members)
        until(lambda: any(each.off() for each in members))
    unload()
    try:
        assert [each.off() for each in members] == [0, 0]
        until(lambda: min(shares(*members, seconds=0.5)) > least(100_000))
    finally:
        load()


def test_rows_without_turns_let_everybody_on_again(classes: genl.DetShare, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    join(classes, "low", *members)
    until(lambda: any(each.off() for each in members))
    write(classes, turn_us=None)
    until(lambda: not any(each.off() for each in members))
    assert turn(classes) == {"turn_mode": NONE}
