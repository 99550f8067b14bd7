# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvsim_harness import HIGH, LOW, MEDIUM, MS, NEVER, US, Bench


def round_of(levels: list[int]) -> list[int]:
    """One round as the rule says: LOW once, MEDIUM once per LOW, HIGH before every MEDIUM and every LOW."""
    low, medium, high = ([i for i, at in enumerate(levels) if at == level] for level in (LOW, MEDIUM, HIGH))
    mediums = [each for tsg in medium for each in (*high, tsg)]
    if not low:
        return mediums or high
    return [each for tsg in low for each in (*mediums, *high, tsg)]


@given(st.lists(st.sampled_from([LOW, MEDIUM, HIGH]), min_size=1, max_size=9))
def test_a_round_has_each_level_as_often_as_the_rule_says(levels: list[int]) -> None:
    bench = Bench()
    for level in levels:
        bench.tsg(level)
    expected = round_of(levels)
    seen = [bench.call("round_next") for _ in range(4 * len(expected))]
    start = seen.index(expected[0])
    # whatever came first, from there on it is that round again and again, in some rotation
    turns = seen[start : start + 2 * len(expected)]
    doubled = expected * 3
    assert any(turns == doubled[i : i + len(turns)] for i in range(len(expected)))


def test_a_kernel_alone_takes_one_context_load_and_its_duration() -> None:
    bench = Bench()
    chan = bench.chan(bench.tsg())
    bench.submit(chan, 50 * US)
    assert bench.call("next") == 200 * US
    bench.advance(1 * MS)
    assert bench.ended() == [(250 * US, chan)]
    bench.submit(chan, 50 * US)
    bench.advance(1 * MS)
    assert bench.ended() == [(1 * MS + 50 * US, chan)], "its context was still loaded"


def test_queued_kernels_follow_each_other_at_exact_times_however_late_the_clock_is_read() -> None:
    bench = Bench(switch=0)
    chan = bench.chan(bench.tsg())
    for _ in range(100):
        bench.submit(chan, 10 * US)
    bench.advance(5 * MS)
    assert [when for when, _ in bench.ended()] == [10 * US * (i + 1) for i in range(100)]


def test_two_busy_groups_share_by_their_slices() -> None:
    bench = Bench(switch=0)
    tsgs = [bench.tsg(slice_ns=3 * MS), bench.tsg(slice_ns=1 * MS)]
    for tsg in tsgs:
        bench.submit(bench.chan(tsg), 100 * US, forever=True)
    bench.advance(4000 * MS)
    assert [bench.share(tsg) for tsg in tsgs] == [pytest.approx(0.75, abs=0.01), pytest.approx(0.25, abs=0.01)]


def test_a_switch_costs_its_time_and_nothing_runs_in_it() -> None:
    bench = Bench(switch=200 * US)
    for _ in range(2):
        bench.submit(bench.chan(bench.tsg(slice_ns=1 * MS)), 10 * MS, forever=True)
    bench.advance(1200 * MS)
    assert bench.call("switches") == pytest.approx(1000, abs=2)
    assert bench.call("switching") + bench.call("busy") == bench.now


def test_a_preempted_kernel_goes_on_where_it_was() -> None:
    bench = Bench(switch=0)
    one, two = bench.tsg(slice_ns=1 * MS), bench.tsg(slice_ns=1 * MS)
    first, second = bench.chan(one), bench.chan(two)
    bench.submit(first, 2 * MS)
    bench.submit(second, 2 * MS)
    bench.advance(10 * MS)
    assert bench.ended() == [(3 * MS, first), (4 * MS, second)]


def test_an_idle_group_yields_at_once() -> None:
    bench = Bench(switch=0)
    one, two = bench.tsg(slice_ns=1000 * MS), bench.tsg(slice_ns=1000 * MS)
    first, second = bench.chan(one), bench.chan(two)
    bench.submit(first, 1 * MS)
    bench.submit(second, 1 * MS)
    bench.advance(10 * MS)
    assert bench.ended() == [(1 * MS, first), (2 * MS, second)]


def test_a_newcomer_waits_for_the_rest_of_a_slice_of_a_group_that_was_alone() -> None:
    bench = Bench(switch=0)
    one, two = bench.tsg(slice_ns=2 * MS), bench.tsg()
    bench.submit(bench.chan(one), NEVER)
    bench.advance(5 * MS)
    late = bench.chan(two)
    bench.submit(late, 10 * US)
    bench.advance(5 * MS)
    assert bench.ended() == [(6 * MS + 10 * US, late)]


def test_a_short_slice_of_the_neighbour_bounds_the_wait() -> None:
    waits = {}
    for slice_ns in (2048 * US, 50 * US):
        bench = Bench()
        be, lc = bench.tsg(slice_ns=slice_ns), bench.tsg(level=HIGH, slice_ns=20 * MS)
        bench.submit(bench.chan(be), 687 * US, forever=True)
        chan = bench.chan(lc)
        worst = 0
        for i in range(200):
            bench.advance(3 * MS + 37 * US * (i % 50))
            bench.ended()
            begin = bench.now
            bench.submit(chan, 50 * US)
            while not (mine := [when for when, who in bench.ended() if who == chan]):
                bench.advance(50 * US)
            worst = max(worst, mine[0] - begin)
        waits[slice_ns] = worst
    assert waits[2048 * US] > 1500 * US
    assert waits[50 * US] <= (50 + 200 + 50 + 200) * US


def test_levels_decide_how_often_a_group_gets_its_turn() -> None:
    bench = Bench(switch=0)
    high, low = bench.tsg(HIGH, 1 * MS), [bench.tsg(LOW, 1 * MS) for _ in range(3)]
    for tsg in (high, *low):
        bench.submit(bench.chan(tsg), 1 * MS, forever=True)
    bench.advance(600 * MS)
    assert bench.share(high) == pytest.approx(0.5, abs=0.02)
    assert all(bench.share(tsg) == pytest.approx(1 / 6, abs=0.02) for tsg in low)


def test_kernels_of_one_group_run_side_by_side_where_their_sms_fit() -> None:
    bench = Bench(switch=0)
    tsg = bench.tsg()
    chans = [bench.chan(tsg) for _ in range(3)]
    bench.call("submit", chans[0], 1 * MS, 100, 0)
    bench.call("submit", chans[1], 1 * MS, 32, 0)
    bench.call("submit", chans[2], 1 * MS, 40, 0)
    bench.advance(10 * MS)
    assert bench.ended() == [(1 * MS, chans[0]), (1 * MS, chans[1]), (2 * MS, chans[2])]
    assert bench.call("gpu_time", tsg) == 2 * MS


def test_kernels_of_two_groups_never_run_side_by_side() -> None:
    bench = Bench(switch=0)
    for _ in range(2):
        bench.submit(bench.chan(bench.tsg()), 1 * MS, sms=1)
    bench.advance(10 * MS)
    assert [when for when, _ in bench.ended()] == [1 * MS, 2 * MS]


def test_disabling_takes_a_running_kernel_off_and_nests() -> None:
    bench = Bench(switch=0)
    tsg = bench.tsg()
    chan = bench.chan(tsg)
    bench.submit(chan, NEVER)
    bench.advance(1 * MS)
    assert bench.call("ran", chan) == 1 * MS
    bench.change("disable", chan, 1, 0)
    bench.change("disable", chan, 1, 0)
    bench.advance(5 * MS)
    assert bench.call("ran", chan) == 1 * MS
    bench.change("disable", chan, 0, 0)
    bench.advance(5 * MS)
    assert bench.call("ran", chan) == 1 * MS, "switched off twice, on once"
    bench.change("disable", chan, 0, 0)
    bench.change("disable", chan, 0, 0)
    bench.advance(5 * MS)
    assert bench.call("ran", chan) == 6 * MS
    bench.change("disable", chan, 1, 0)
    bench.advance(1 * MS)
    assert bench.call("ran", chan) == 6 * MS, "switching on once too often must not make up for a later off"


def test_only_scheduling_off_lets_the_running_kernel_end_and_no_other_begin() -> None:
    bench = Bench(switch=0)
    chan = bench.chan(bench.tsg())
    bench.submit(chan, 1 * MS)
    bench.submit(chan, 1 * MS)
    bench.change("disable", chan, 1, 1)
    bench.advance(5 * MS)
    assert bench.call("finished", chan) == 1
    bench.change("disable", chan, 0, 1)
    bench.advance(5 * MS)
    assert bench.call("finished", chan) == 2


def test_a_paused_neighbour_leaves_the_engine_to_the_others() -> None:
    bench = Bench(switch=0)
    be, lc = bench.tsg(), bench.tsg()
    background, latency = bench.chan(be), bench.chan(lc)
    bench.submit(background, NEVER)
    bench.advance(1 * MS)
    bench.change("disable", background, 1, 0)
    bench.submit(latency, 10 * US)
    bench.advance(1 * MS)
    assert bench.ended() == [(1 * MS + 10 * US, latency)]


def test_unscheduling_does_not_stop_a_running_kernel_but_bars_the_next() -> None:
    bench = Bench(switch=0)
    tsg = bench.tsg()
    chan = bench.chan(tsg)
    bench.submit(chan, 1 * MS)
    bench.submit(chan, 1 * MS)
    bench.change("enable", tsg, 0)
    bench.advance(5 * MS)
    assert (bench.call("finished", chan), bench.state(tsg)) == (1, "off")


def test_a_group_that_was_never_scheduled_runs_nothing() -> None:
    bench = Bench()
    tsg = bench.tsg(enabled=False)
    bench.submit(bench.chan(tsg), 1 * MS)
    bench.advance(10 * MS)
    assert (bench.ended(), bench.state(tsg)) == ([], "off")


def test_preempt_gives_the_turn_away_and_it_comes_back() -> None:
    bench = Bench(switch=100 * US)
    one, two = bench.tsg(slice_ns=1000 * MS), bench.tsg(slice_ns=1 * MS)
    first, second = bench.chan(one), bench.chan(two)
    bench.submit(first, NEVER)
    bench.advance(1 * MS)
    bench.submit(second, 10 * US)
    bench.advance(1 * MS)
    assert bench.ended() == []
    bench.change("preempt", one)
    bench.advance(1 * MS)
    assert bench.ended() == [(2 * MS + 110 * US, second)]
    assert bench.state(one) == "running"


def test_a_shorter_slice_acts_on_the_slice_that_runs() -> None:
    bench = Bench(switch=0)
    one, two = bench.tsg(slice_ns=1000 * MS), bench.tsg()
    bench.submit(bench.chan(one), NEVER)
    waiting = bench.chan(two)
    bench.submit(waiting, 10 * US)
    bench.advance(5 * MS)
    bench.change("slice", one, 200 * US)
    bench.advance(100 * US)
    assert bench.ended() == [(5 * MS + 10 * US, waiting)]


@pytest.mark.parametrize("slice_ns", [0, 1, 2**40 * US, NEVER])
def test_any_slice_makes_progress_and_ends(slice_ns: int) -> None:
    bench = Bench(switch=0)
    tsgs = [bench.tsg(slice_ns=slice_ns), bench.tsg(slice_ns=1 * MS)]
    chans = [bench.chan(tsg) for tsg in tsgs]
    for chan in chans:
        bench.submit(chan, 3 * MS)
    bench.advance(4000 * MS)
    assert sorted(who for _, who in bench.ended()) == chans


def test_an_endless_kernel_ends_when_told() -> None:
    bench = Bench(switch=0)
    chan = bench.chan(bench.tsg())
    bench.submit(chan, NEVER)
    bench.advance(7 * MS)
    bench.change("end_kernel", chan)
    assert bench.ended() == [(7 * MS, chan)]


_ACTS = st.sampled_from(
    ["tsg", "chan", "submit", "forever", "slice", "level", "enable", "unable", "preempt", "off", "off-soft", "on",
     "remove_chan", "remove_tsg", "end_kernel", "advance"]
)  # fmt: skip


@given(
    st.lists(st.tuples(_ACTS, st.integers(0, 10**6), st.integers(0, 10**6)), max_size=80),
    st.sampled_from([0, 200 * US]),
)
def test_no_order_of_calls_breaks_the_counts_or_stops_the_clock(acts: list[tuple[str, int, int]], switch: int) -> None:
    bench = Bench(switch=switch)
    tsgs: list[int] = []
    chans: dict[int, int] = {}
    for act, a, b in acts:
        if act == "tsg":
            tsgs.append(bench.tsg(a % 3, b * US % (3 * MS)))
            continue
        if act == "advance":
            bench.advance(a)
            continue
        if not tsgs:
            continue
        tsg = tsgs[a % len(tsgs)]
        if act == "chan":
            chans[bench.chan(tsg)] = tsg
        elif act == "slice":
            bench.change("slice", tsg, b)
        elif act == "level":
            bench.change("level", tsg, b % 3)
        elif act in ("enable", "unable"):
            bench.change("enable", tsg, int(act == "enable"))
        elif act == "preempt":
            bench.change("preempt", tsg)
        elif act == "remove_tsg":
            bench.change("remove_tsg", tsg)
            tsgs.remove(tsg)
            chans = {chan: at for chan, at in chans.items() if at != tsg}
        elif chans:
            chan = list(chans)[a % len(chans)]
            if act == "submit":
                bench.submit(chan, b, sms=a % 200 + 1)
            elif act == "forever":
                bench.submit(chan, b + 1000, sms=a % 200 + 1, forever=True)
            elif act == "remove_chan":
                bench.change("remove_chan", chan)
                del chans[chan]
            elif act == "end_kernel":
                bench.change("end_kernel", chan)
            else:
                bench.change("disable", chan, int(act != "on"), int(act == "off-soft"))
    bench.advance(20 * MS)
    assert bench.call("switching") + bench.call("busy") <= bench.now


def test_a_busy_group_is_never_left_waiting_while_the_engine_idles() -> None:
    bench = Bench(switch=0)
    tsgs = [bench.tsg(level) for level in islice([LOW, MEDIUM, HIGH] * 3, 9)]
    for tsg in tsgs:
        bench.submit(bench.chan(tsg), 300 * US, forever=True)
    bench.advance(1000 * MS)
    assert bench.call("busy") == bench.now
    assert all(bench.share(tsg) > 0 for tsg in tsgs)


def two_groups(slice_ns: int = MS, switch: int = 0) -> tuple[Bench, list[int], list[int]]:
    bench = Bench(switch=switch)
    tsgs = [bench.tsg(slice_ns=slice_ns), bench.tsg(slice_ns=slice_ns)]
    return bench, tsgs, [bench.chan(tsg) for tsg in tsgs]


def test_a_kernel_of_a_group_that_waits_for_idle_is_never_taken_off() -> None:
    bench, tsgs, chans = two_groups()
    bench.change("wfi", tsgs[0], 1)
    bench.submit(chans[0], 10 * MS)
    bench.submit(chans[0], 10 * MS)
    bench.submit(chans[1], 3 * MS)
    bench.advance(12 * MS)
    assert bench.ended() == [(10 * MS, chans[0])], "ten slices long"
    bench.change("preempt", tsgs[0])
    bench.advance(20 * MS)
    # the second kernel of the first group has to wait for its group's next turn, as any other
    assert bench.ended() == [(21 * MS, chans[0]), (23 * MS, chans[1])]


def test_a_kernel_that_cannot_be_taken_off_outlives_the_pause_of_its_channel() -> None:
    bench, tsgs, chans = two_groups()
    bench.change("wfi", tsgs[0], 1)
    bench.submit(chans[0], 5 * MS)
    bench.submit(chans[0], 5 * MS)
    bench.change("disable", chans[0], 1, 0)
    bench.advance(20 * MS)
    assert (bench.call("finished", chans[0]), bench.call("busy")) == (1, 5 * MS), "and what waited did not begin"
    bench.change("disable", chans[0], 0, 0)
    bench.advance(20 * MS)
    assert (bench.call("finished", chans[0]), bench.call("busy")) == (2, 10 * MS)


def test_a_preempted_group_that_waits_for_idle_gives_way_when_it_is_idle() -> None:
    bench, tsgs, chans = two_groups(slice_ns=100 * MS)
    bench.change("wfi", tsgs[0], 1)
    bench.submit(chans[0], 5 * MS, forever=True)
    bench.submit(chans[1], 1 * MS)
    bench.advance(2 * MS)
    bench.change("preempt", tsgs[0])
    bench.advance(10 * MS)
    assert bench.ended()[:2] == [(5 * MS, chans[0]), (6 * MS, chans[1])]


def test_a_group_that_had_no_slice_gets_one_from_now_on() -> None:
    bench, tsgs, chans = two_groups()
    bench.change("slice", tsgs[0], NEVER)
    bench.submit(chans[0], 50 * MS)
    bench.submit(chans[1], 1 * MS)
    bench.advance(20 * MS)
    assert bench.ended() == []
    bench.change("slice", tsgs[0], 2 * MS)
    bench.advance(5 * MS)
    assert bench.ended() == [(23 * MS, chans[1])]


def test_a_restart_ends_the_turn_and_begins_with_the_highest_level() -> None:
    bench = Bench(switch=0)
    low, high = bench.tsg(LOW, 100 * MS), bench.tsg(HIGH, 100 * MS)
    lows, highs = bench.chan(low), bench.chan(high)
    bench.submit(lows, 50 * MS)
    bench.advance(1 * MS)
    bench.submit(highs, 1 * MS)
    bench.change("restart")
    bench.advance(60 * MS)
    assert bench.ended() == [(2 * MS, highs), (51 * MS, lows)]


def test_the_first_of_a_level_comes_before_the_others_of_it() -> None:
    bench = Bench()
    tsgs = [bench.tsg(HIGH) for _ in range(3)]
    bench.tsg(LOW)
    bench.call("first", tsgs[2])
    bench.call("restart")
    assert [bench.call("round_next") for _ in range(3)] == [tsgs[2], tsgs[0], tsgs[1]]


def test_a_channel_that_hangs_leaves_the_engine_to_the_others() -> None:
    bench, _, chans = two_groups()
    bench.submit(chans[0], 2 * MS)
    bench.submit(chans[1], 2 * MS)
    bench.change("hang", chans[0])
    bench.advance(10 * MS)
    assert bench.ended() == [(2 * MS, chans[1])]
    assert bench.call("gpu_time", 0) == 0


def short_slices(us: int) -> Bench:
    """Two busy groups with slices of so many microseconds, as an H200 switches, after a second."""
    bench = Bench(switch=85 * US, restore=120 * US, late=120 * US)
    for _ in range(2):
        bench.submit(bench.chan(bench.tsg(slice_ns=us * US)), 10 * MS, forever=True)
    bench.advance(1000 * MS)
    return bench


@pytest.mark.parametrize("us", [1, 50, 120])
def test_two_groups_with_slices_that_end_within_the_restore_only_switch(us: int) -> None:
    bench = short_slices(us)
    # the first was there before the other, and had a second turn without a switch
    assert [bench.call("gpu_time", tsg) for tsg in (0, 1)] == [pytest.approx(us * US, abs=1024), 0]
    assert bench.call("switches") == pytest.approx(1000 * MS / (205 * US), abs=2)
    assert bench.call("switching") + bench.call("restoring") + bench.call("busy") == bench.now


def test_a_restore_is_a_part_of_the_slice_of_who_comes_and_its_end_is_acted_on_late() -> None:
    bench = short_slices(500)
    for tsg in (0, 1):
        assert bench.share(tsg) == pytest.approx(500 / (2 * 705), rel=0.01)
    runs = bench.runs()[1:]
    assert {end - begin for _, begin, end in runs} == {620 * US}
    assert {later[1] - run[2] for run, later in pairwise(runs)} == {85 * US}


def test_who_goes_on_pays_no_restore_and_is_not_in_the_log() -> None:
    bench = Bench(switch=85 * US, restore=120 * US)
    tsg = bench.tsg(slice_ns=50 * US)
    bench.submit(bench.chan(tsg), 10 * MS)
    bench.advance(11 * MS)
    assert bench.ended() == [(10 * MS + 205 * US, 0)], "one restore, whatever its slice"
    bench.submit(0, 1 * MS)
    bench.advance(2 * MS)
    assert bench.ended() == [(12 * MS, 0)]
    assert bench.runs() == []
    assert bench.call("switches") == 1


def test_who_comes_while_another_restores_waits_for_the_end_of_that() -> None:
    bench = Bench(switch=85 * US, restore=120 * US)
    low, high = bench.tsg(LOW, 50 * US), bench.tsg(HIGH, 20 * MS)
    bench.submit(bench.chan(low), 10 * MS)
    bench.advance(90 * US)
    bench.submit(bench.chan(high), 1 * MS)
    bench.advance(2 * MS)
    assert bench.ended() == [(205 * US + 205 * US + 1 * MS, 1)]
    assert bench.runs()[0] == (low, 85 * US, 205 * US)


def test_who_was_taken_off_is_restored_when_it_goes_on() -> None:
    bench = Bench(switch=85 * US, restore=120 * US, save=40 * US)
    tsg = bench.tsg()
    chan = bench.chan(tsg)
    bench.submit(chan, 1 * MS)
    bench.advance(500 * US)
    bench.change("disable", chan, 1, 0)
    assert bench.runs() == [(tsg, 85 * US, 500 * US)]
    bench.change("disable", chan, 0, 0)
    bench.advance(2 * MS)
    assert bench.ended() == [(500 * US + 40 * US + 205 * US + 705 * US, chan)], "saved, switched, restored, the rest"
