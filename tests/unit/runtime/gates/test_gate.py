# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from gatekit import HOLD, Daemon, Program, Tenant

from detshare.runtime import board_layout as layout
from detshare.runtime.board import monotonic_ns
from tests.patience import ended, until

LOW, HIGH = layout.CLASS_LOW, layout.CLASS_HIGH
Start = Callable[..., Program]


def hold_by_a_class(daemon: Daemon) -> None:
    """A higher class that is active for good, in slot 9."""
    slot = daemon.activity.slots[9]
    slot.assign(1, 1, HIGH)
    slot.put("beat", monotonic_ns() + 10**12)
    slot.put("active", 1)


def held(daemon: Daemon, start: Start, **policy: object) -> tuple[Program, Tenant]:
    tenant = daemon.tenant(LOW, **(HOLD | policy))
    program = start()
    program.attach()
    hold_by_a_class(daemon)
    until(lambda: program.state()["word"] == 1 << 9)
    return program, tenant


def learn(program: Program, function: int, us: float) -> None:
    """The program knows that this kernel takes so long."""
    program.ask(f"elapsed {us / 1000}")
    program.ask(f"launch 1 {function} 1 1")
    until(lambda: program.number(f"estimate {function} 1") == pytest.approx(us * 1000, rel=0.01))


def test_no_gates_while_the_policy_wants_none(daemon: Daemon, start: Start) -> None:
    daemon.tenant(LOW, **(HOLD | {"gate_us": 0}))
    program = start()
    program.attach()
    program.ask("launch 0 1 1 5000")
    assert program.state()["waits"] == 0


@pytest.mark.parametrize(
    ("us", "every", "launches", "gates"), [(50, 100, 100, 50), (20, 100, 100, 20), (1000, 100, 10, 10)]
)
def test_gates_come_by_estimated_work(
    daemon: Daemon, start: Start, us: int, every: int, launches: int, gates: int
) -> None:
    daemon.tenant(LOW, **(HOLD | {"gate_us": every}))
    program = start()
    program.attach()
    learn(program, 7, us)
    assert program.state()["waits"] == 0
    program.ask(f"launch 0 7 1 {launches}")
    assert abs(program.state()["waits"] - gates) <= 1


def test_streams_have_gates_of_their_own(daemon: Daemon, start: Start) -> None:
    daemon.tenant(LOW, **(HOLD | {"gate_us": 100}))
    program = start()
    program.attach()
    learn(program, 7, 60)
    for _ in range(2):
        for stream in (2, 3, 4):
            program.ask(f"launch {stream} 7 1 1")
    assert program.state()["waits"] == 0
    for stream in (2, 3, 4):
        program.ask(f"launch {stream} 7 1 1")
    assert program.state()["waits"] == 3


def test_a_held_stream_gets_one_gate_at_its_next_launch(daemon: Daemon, start: Start) -> None:
    program, _ = held(daemon, start, gate_us=1000, floor_period_us=0)
    program.ask("launch 0 1 1 20")
    assert program.state()["waits"] == 1
    program.ask("launch 1 1 1 20")
    assert program.state()["waits"] == 2


def test_at_most_depth_launches_enter_while_held(daemon: Daemon, start: Start) -> None:
    program, tenant = held(daemon, start, depth=8)
    program.ask("spawn 0 1 1 50")
    until(lambda: program.state()["launched"] == 8)
    time.sleep(0.1)
    assert program.state()["launched"] == 8
    # a policy needs no ending of the wait: nobody is inside a launch
    daemon.activity.slots[9].free()
    program.ask("join")
    assert program.state()["launched"] == 50
    assert tenant.counters.get("held_ns") > 50_000_000


def test_a_hold_by_hand_closes_every_mode_and_a_release_opens(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW, depth=2, gate_us=1000)
    program = start()
    program.attach()
    tenant.slot.hold(True)
    program.ask("spawn 0 1 1 10")
    until(lambda: program.state()["launched"] == 2)
    time.sleep(0.05)
    state = program.state()
    assert (state["launched"], state["word"]) == (2, layout.HELD)
    # mode TIER: the gate looks at bit 31 alone, higher classes do not close it
    assert (state["waits"], state["nors"]) == (0, 1)
    tenant.slot.hold(False)
    program.ask("join")
    assert program.state()["launched"] == 10


def test_a_hold_by_hand_ends_with_the_daemons_lease(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW, depth=1)
    program = start()
    program.attach()
    tenant.policy.lease(monotonic_ns() + 400_000_000)
    tenant.slot.hold(True)
    began = time.monotonic()
    program.ask("spawn 0 1 1 5")
    program.ask("join")
    assert time.monotonic() - began > 0.3
    assert not tenant.slot.held
    # and without any lease it does not begin
    tenant.policy.lease(0)
    tenant.slot.hold(True)
    until(lambda: not tenant.slot.held)


def test_a_byte_store_of_the_daemon_loses_no_bit_of_the_tenants(daemon: Daemon, start: Start) -> None:
    low_tenant = daemon.tenant(LOW)
    low = start()
    low.attach()
    daemon.tenant(HIGH)
    high = start()
    high.attach()
    high.ask("spawn 0 1 1 2000000")
    for turn in range(20000):
        low_tenant.slot.hold(turn % 2 == 0)
    low_tenant.slot.hold(True)
    assert low_tenant.slot.held
    high.ask("join")
    until(lambda: low_tenant.slot.get("word") == layout.HELD)


def test_the_watchdog_opens_a_gate_while_the_driver_is_stuck(daemon: Daemon, start: Start) -> None:
    program, _ = held(daemon, start, depth=1)
    # as a thread inside cuMemFree with everything it may hold: the poller gets nowhere
    program.ask("lock")
    program.ask("spawn 0 1 1 3")
    daemon.activity.slots[9].put("beat", 0)
    program.ask("join")
    assert program.state()["launched"] == 3
    program.ask("unlock")


def test_the_floor_opens_each_period_and_uses_the_busy_tier(daemon: Daemon, start: Start) -> None:
    program, tenant = held(daemon, start, depth=4, floor_permille=200, floor_period_us=100_000)
    program.ask("busy 0 1")
    tiers = set()
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        tiers.add(program.number("launch 0 1 1 1"))
    assert tiers == {1}
    assert 0.05e9 < tenant.counters.get("floor_ns") < 0.6e9
    assert program.state()["word"] in (0, 1 << 9)
    until(lambda: program.state()["floor"] == 1)
    until(lambda: program.state()["floor"] == 0)


def test_what_was_queued_to_be_held_gets_windows_when_the_mode_becomes_a_tier(daemon: Daemon, start: Start) -> None:
    program, tenant = held(daemon, start, depth=4, floor_period_us=0)
    program.ask("busy 0 1")
    program.ask("launch 0 1 1 2")
    assert program.state()["waits"] == 1  # at a gate that only a clear word opens
    tenant.policy.write(mode_busy=layout.MODE_TIER, tier_busy=2)
    # the higher class is active for good, and the gate's work does not end: windows come until it does
    until(lambda: program.state()["floor"] == 1 and program.state()["word"] == 0)
    until(lambda: program.state()["floor"] == 0 and program.state()["word"] == 1 << 9)
    assert program.number("launch 0 1 1 1") == 2
    program.ask("busy 0 0")
    until(lambda: tenant.counters.get("epoch_ack") == tenant.policy.epoch)
    time.sleep(0.02)
    program.ask("busy 0 1")
    program.ask("launch 0 1 1 1")
    for _ in range(50):
        assert program.state()["word"] == 1 << 9
        time.sleep(0.002)


def test_no_floor_for_a_hold_by_hand(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW, **(HOLD | {"depth": 1, "floor_permille": 500, "floor_period_us": 10_000}))
    program = start()
    program.attach()
    tenant.slot.hold(True)
    program.ask("spawn 0 1 1 9")
    time.sleep(0.3)
    assert program.state()["launched"] == 1
    tenant.slot.hold(False)
    program.ask("join")


def test_gates_that_the_driver_refuses_end_with_one_line(daemon: Daemon, start: Start) -> None:
    program, _ = held(daemon, start, gate_us=10)
    program.ask("failwait 1")
    program.ask("launch 0 1 1 100")
    assert program.state()["waits"] == 0
    assert program.log.count("gates end") == 1


def test_an_exit_while_held_opens_the_gates(daemon: Daemon, start: Start) -> None:
    program, tenant = held(daemon, start, depth=1)
    program.ask("launch 0 1 1 1")
    assert program.process.stdin is not None
    program.process.stdin.write("exit\n")
    program.process.stdin.flush()
    assert ended(program.process) == 0
    assert tenant.slot.get("state") == layout.SLOT_LEAVING
    assert tenant.slot.get("word") == 0


def test_a_detach_while_held_opens_the_gates_and_leaves_the_driver_alone(daemon: Daemon, start: Start) -> None:
    program, tenant = held(daemon, start, depth=4)
    program.ask("launch 0 1 1 1")
    assert program.ask("detach") == "1"
    assert tenant.slot.get("state") == layout.SLOT_LEAVING
    until(lambda: tenant.slot.get("word") == 0)
    hold_by_a_class(daemon)
    # the same process may attach again, as another vCtx
    again = daemon.tenant(LOW, **HOLD)
    program.attach()
    assert again.slot.index == 1
    until(lambda: again.slot.get("word") == 1 << 9)
    assert tenant.slot.get("word") == 0


def test_a_forked_child_lets_go_of_the_pages(daemon: Daemon, start: Start) -> None:
    program, tenant = held(daemon, start)
    assert program.ask("child") == "0"
    assert tenant.slot.get("state") == layout.SLOT_LIVE
    assert program.number("launch 0 1 1 1") == 1


def test_estimates_follow_the_kernel_and_tell_grids_apart(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW)
    program = start()
    program.attach()
    learn(program, 5, 80)
    program.ask("elapsed 0.4")
    program.ask("launch 1 5 2 1")
    until(lambda: program.number("estimate 5 2") == pytest.approx(400_000, rel=0.01))
    assert program.number("estimate 5 1") == pytest.approx(80_000, rel=0.01)
    counted = tenant.counters.array("hist_kernel")
    assert sum(counted) <= tenant.counters.get("samples") == 2


def test_a_program_that_launches_nothing_gives_the_gpu_nothing_to_do(daemon: Daemon, start: Start) -> None:
    """Its context would take the GPU from others, and it would count as one that computes."""
    tenant = daemon.tenant(LOW)
    program = start()
    program.attach()
    assert program.state()["records"] == 0
    launches = 0

    def timed() -> bool:
        nonlocal launches
        launches += 1
        program.ask("launch 1 5 1 1")
        return sum(tenant.counters.array("hist_kernel")) > 0

    until(timed)  # a point of both clocks for which the machine was too slow is none
    assert program.state()["records"] <= 3 * launches, "before and after each, and one such point"


def test_grids_smaller_than_the_gpu_count_as_leaving_sms_idle(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW)
    program = start()
    program.attach()
    program.ask("elapsed 0.2")
    program.ask("launch 1 5 33 1")  # a quarter of 132 SMs
    until(lambda: tenant.counters.get("timed_ns") == pytest.approx(200_000, rel=0.01))
    assert tenant.counters.get("filled_ns") == pytest.approx(50_000, rel=0.01)
    program.ask("launch 1 5 2000 1")
    until(lambda: tenant.counters.get("timed_ns") == pytest.approx(400_000, rel=0.01))
    assert tenant.counters.get("filled_ns") == pytest.approx(250_000, rel=0.01)
    program.ask("graph 1 9")
    until(lambda: tenant.counters.get("samples") == 3)
    assert tenant.counters.get("timed_ns") == pytest.approx(400_000, rel=0.01)


def test_shapes_that_take_most_time_are_kept_and_delays_counted(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW)
    program = start()
    program.attach()

    def run(function: int, blocks: int, milliseconds: float, samples: int) -> None:
        program.ask(f"elapsed {milliseconds}")
        program.ask(f"launch 1 {function} {blocks} 1")
        until(lambda: tenant.counters.get("samples") == samples)

    run(5, 2000, 8.0, 1)
    for number in range(1, 41):
        run(5 + number, 32 + number, 0.2, 1 + number)
    blocks, threads = tenant.counters.array("shape_blocks"), tenant.counters.array("shape_threads")
    assert 2000 in blocks, "what takes most time stays, however many come after it"
    assert 72 in blocks, "who came last has a place, too"
    assert tenant.counters.get("last_blocks") == 72
    assert len(set(zip(blocks, threads, strict=True))) == layout.SHAPES
    place = blocks.index(2000) * layout.HIST_BUCKETS
    hist = tenant.counters.array("shape_hist")[place : place + layout.HIST_BUCKETS]
    assert [bucket for bucket, count in enumerate(hist) if count] == [22]  # 4.2 to 8.4 ms
    assert sum(tenant.counters.array("shape_ns")) == pytest.approx(16e6, rel=0.01)
    program.ask("graph 1 9")
    until(lambda: tenant.counters.get("samples") == 42)
    assert sum(tenant.counters.array("shape_ns")) == pytest.approx(16e6, rel=0.01), "a graph has no grid"
    timed = sum(tenant.counters.array("hist_kernel")) + sum(tenant.counters.array("hist_graph"))
    assert sum(tenant.counters.array("hist_delay")) == timed


def test_timing_is_rare_once_a_kernel_is_known(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW)
    program = start()
    program.attach()
    program.ask("launch 0 3 1 100000")
    until(lambda: tenant.counters.get("launches") == 100_000)
    time.sleep(0.05)
    # 1, 2, 4 .. 128, then one in 256
    assert 4 <= tenant.counters.get("samples") <= 8 + 100_000 // 256 + 1
