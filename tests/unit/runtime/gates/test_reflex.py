# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable

from gatekit import HOLD, TIERS, Daemon, Program

from detshare.runtime import board_layout as layout
from detshare.runtime.board import monotonic_ns
from tests.patience import until

LOW, NORMAL, HIGH = layout.CLASS_LOW, layout.CLASS_NORMAL, layout.CLASS_HIGH
Start = Callable[..., Program]


def pair(daemon: Daemon, start: Start, low: dict[str, object], high: dict[str, object]) -> tuple[Program, Program]:
    daemon.tenant(LOW, **low)
    below = start()
    below.attach()
    daemon.tenant(HIGH, **high)
    above = start()
    above.attach()
    return below, above


def test_a_higher_class_sends_a_lower_one_to_its_busy_tier_and_back(daemon: Daemon, start: Start) -> None:
    low, high = pair(daemon, start, {"tier_busy": 2}, {})
    assert low.number("launch 0 1 1 1") == 0
    high.ask("busy 0 1")
    assert high.number("launch 0 1 1 1") == 0
    # set by the launch itself, so it is seen at once
    assert low.state()["word"] == 1 << 1
    assert low.number("launch 0 1 1 1") == 2
    high.ask("busy 0 0")
    until(lambda: low.state()["word"] == 0)
    assert low.number("launch 0 1 1 1") == 0
    assert high.state()["active"] == 0


def test_a_sync_ends_activity_at_once(daemon: Daemon, start: Start) -> None:
    low, high = pair(daemon, start, {}, {})
    at_once = 0
    for _ in range(20):
        # the driver never says that the stream is done: what tells is the sync
        high.ask("busy 0 1")
        high.ask("launch 0 1 1 1")
        assert low.state()["word"] == 2
        high.ask("sync 0")
        at_once += low.state()["word"] == 0
        until(lambda: low.state()["word"] == 0)
    # where the poller had the lock for too long it is the poller's next look
    assert at_once > 10


def test_active_time_is_counted_when_it_ends(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(HIGH)
    program = start()
    program.attach()
    program.ask("busy 0 1")
    begin = monotonic_ns()
    program.ask("launch 0 1 1 1")
    time.sleep(0.05)
    assert tenant.slot.get("active") == 1
    assert tenant.counters.get("active_ns") == 0
    program.ask("busy 0 0")
    until(lambda: tenant.slot.get("active") == 0)
    until(lambda: tenant.counters.get("active_ns") > 0)
    first = tenant.counters.get("active_ns")
    assert 50_000_000 <= first <= monotonic_ns() - begin
    time.sleep(0.05)
    assert tenant.counters.get("active_ns") == first
    program.ask("launch 0 1 1 1")
    until(lambda: tenant.counters.get("active_ns") > first)


def test_a_sync_of_one_stream_ends_nothing_while_another_has_work(daemon: Daemon, start: Start) -> None:
    low, high = pair(daemon, start, {}, {})
    high.ask("busy 1 1")
    high.ask("launch 1 1 1 1")
    high.ask("launch 0 1 1 1")
    high.ask("sync 0")
    time.sleep(0.05)
    assert low.state()["word"] == 2
    high.ask("busy 1 0")
    until(lambda: low.state()["word"] == 0)


def test_a_program_lingers_as_long_as_its_policy_says(daemon: Daemon, start: Start) -> None:
    low, high = pair(daemon, start, {}, {"linger_us": 300_000})
    high.ask("launch 0 1 1 1")
    began = time.monotonic()
    high.ask("sync 0")
    assert low.state()["word"] == 2
    until(lambda: low.state()["word"] == 0)
    assert time.monotonic() - began > 0.25


def test_equal_and_higher_classes_are_left_alone(daemon: Daemon, start: Start) -> None:
    for class_ in (NORMAL, NORMAL, HIGH):
        daemon.tenant(class_)
        program = start()
        program.attach()
        program.ask("busy 0 1")
        program.ask("launch 0 1 1 1")
    words = [slot.get("word") for slot in daemon.activity.slots[:3]]
    assert words == [1 << 2, 1 << 2, 0]


def test_who_attaches_while_a_higher_class_is_active_starts_held(daemon: Daemon, start: Start) -> None:
    daemon.tenant(HIGH)
    high = start()
    high.attach()
    high.ask("busy 0 1")
    high.ask("launch 0 1 1 1")
    daemon.tenant(LOW, tier_busy=1)
    low = start()
    low.attach()
    assert low.number("launch 0 1 1 1") == 1


def test_a_killed_higher_class_lets_go(daemon: Daemon, start: Start) -> None:
    low, high = pair(daemon, start, HOLD, {})
    high.ask("busy 0 1")
    high.ask("launch 0 1 1 1")
    assert low.state()["word"] == 2
    high.process.kill()
    # its slot was never freed: the beat alone tells, after BEAT_STALE_NS and a tick
    until(lambda: low.state()["word"] == 0)
    assert daemon.activity.slots[1].get("active") == 1


def test_a_freed_slot_is_dropped_without_waiting_for_its_beat(daemon: Daemon, start: Start) -> None:
    low, _ = pair(daemon, start, HOLD, {})
    slot = daemon.activity.slots[5]
    slot.assign(1, 1, HIGH)
    slot.put("beat", monotonic_ns() + 10**12)
    slot.put("active", 1)
    until(lambda: low.state()["word"] == 1 << 5)
    slot.free()
    until(lambda: low.state()["word"] == 0)


def test_a_policy_is_seen_by_the_next_launch_and_acknowledged(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(NORMAL)
    program = start()
    program.attach()
    until(lambda: tenant.counters.get("epoch_ack") == tenant.policy.epoch)
    program.ask("busy 0 1")
    program.ask("launch 0 1 1 1")
    epoch = tenant.policy.write(tier_idle=2, tier_busy=2)
    assert program.number("launch 1 1 1 1") == 2
    # work of the old tier is still running on stream 0
    time.sleep(0.05)
    assert tenant.counters.get("epoch_ack") != epoch
    program.ask("busy 0 0")
    until(lambda: tenant.counters.get("epoch_ack") == epoch)


def test_an_idle_program_acknowledges_too(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(NORMAL)
    program = start()
    program.attach()
    for tier in (1, 2, 0, 1):
        epoch = tenant.policy.write(tier_idle=tier)
        until(lambda epoch=epoch: tenant.counters.get("epoch_ack") == epoch)


def test_no_acknowledgement_while_a_thread_is_between_policy_and_driver(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(NORMAL, tiers=TIERS)
    program = start()
    program.attach()
    assert program.number("enter 0") == 0
    epoch = tenant.policy.write(tier_idle=1)
    time.sleep(0.3)
    assert tenant.counters.get("epoch_ack") != epoch
    program.ask("leave")
    until(lambda: tenant.counters.get("epoch_ack") == epoch)


def test_a_launch_that_begins_at_the_idle_edge_keeps_the_program_active(daemon: Daemon, start: Start) -> None:
    low, high = pair(daemon, start, {}, {})
    high.ask("launch 0 1 1 1")
    high.ask("enter 0")
    high.ask("sync 0")
    time.sleep(0.05)
    assert low.state()["word"] == 2
    high.ask("leave")
    until(lambda: low.state()["word"] == 0)


def test_no_launch_is_ever_under_way_unseen(daemon: Daemon, start: Start) -> None:
    _, high = pair(daemon, start, {}, {})
    broken, edges = map(int, high.ask("edges 40000").split())
    assert broken == 0
    # and idle edges did fall between the launches
    assert edges > 100


def test_counters_count(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(NORMAL)
    program = start()
    program.attach()
    program.ask("busy 0 1")
    program.ask("launch 0 1 1 100")
    for _ in range(3):
        program.ask("graph 0 77")
    before = monotonic_ns()
    until(lambda: tenant.counters.get("launches") == 100 and tenant.counters.get("graph_launches") == 3)
    assert tenant.counters.get("in_flight") == 103
    assert abs(tenant.counters.get("last_launch") - before) < 5 * 10**9
    program.ask("busy 0 0")
    until(lambda: tenant.counters.get("in_flight") == 0)


def test_threads_that_ended_keep_their_counts(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(NORMAL)
    program = start()
    program.attach()
    for _ in range(30):
        program.ask("spawn 0 1 1 10")
        program.ask("join")
    until(lambda: tenant.counters.get("launches") == 300)
