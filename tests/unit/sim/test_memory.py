# SPDX-License-Identifier: Apache-2.0
"""More than fits, in the simulator."""

from __future__ import annotations

import pytest

from detshare.ctl.policy.types import Park, Policy
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.policies import load_policy
from detshare.ctl.sim.tenants import Periodic, Saturate, Tenant

GPU = Gpu(switch_us=210.0, memory_gib=80.0, bus_gib_s=40.0)


def trainings(*sizes: float, lane_slice: float = 2048.0) -> list[Tenant]:
    return [Tenant(f"t{n}", Saturate(150.0), memory_gib=size, slice_us=lane_slice) for n, size in enumerate(sizes)]


def run(tenants: list[Tenant], when_full: str, seconds: float, lane: str = "temporal", percent: float = 10.0) -> Engine:
    params = {"when_full": when_full, "copy_percent": str(percent)}
    engine = Engine(GPU, lane, tenants, load_policy("slo-aware", params))
    engine.run(seconds * 1e6)
    assert engine.reins is not None
    assert engine.reins.refused == []
    return engine


def test_what_fits_together_is_never_copied() -> None:
    engine = run(trainings(40, 40), "turns", 5)
    assert engine.memory is not None
    assert (engine.memory.parks, engine.memory.copied_us) == (0, 0.0)
    assert min(engine.rate(each) for each in engine.tenants) > 0.4


@pytest.mark.parametrize("lane", ["temporal", "spatial"])
@pytest.mark.parametrize("percent", [5.0, 20.0])
def test_turns_let_all_work_and_copy_no_more_than_was_stated(lane: str, percent: float) -> None:
    """64 + 64 GiB on 80: a change takes 1.6 + 1.6 s of the bus."""
    engine = run(trainings(64, 64), "turns", 600, lane, percent)
    assert engine.memory is not None
    assert engine.memory.parks > 3
    assert engine.memory.copied_us / (engine.now - engine.memory.copied_us) <= percent / 100
    rates = [engine.rate(each) for each in engine.tenants]
    assert sum(rates) > 1 - 1.5 * percent / 100
    assert min(rates) > 0.35


def test_three_have_turns_too() -> None:
    engine = run(trainings(50, 50, 50), "turns", 900)
    assert min(engine.rate(each) for each in engine.tenants) > 0.15


def test_without_anybody_who_makes_room_the_second_waits() -> None:
    engine = run(trainings(64, 64), "refuse", 60)
    assert [engine.rate(each) > 0.9 for each in engine.tenants] == [True, False]
    assert engine.rate(engine.tenants[1]) == 0


def test_an_idle_one_makes_room_and_comes_back_for_its_request() -> None:
    """A request every 20 s of a tenant that fits beside nobody: it pays its way back, and no request is lost."""
    server = Tenant("server", Periodic(1000.0, 20e6), klass="high", memory_gib=60)
    training = Tenant("training", Saturate(150.0), klass="low", memory_gib=60)
    engine = run([server, training], "park", 100)
    assert engine.memory is not None
    latencies = server.source.latencies  # type: ignore[attr-defined]
    assert len(latencies) == 5
    assert latencies[0] < 2e3
    # 60 GiB out, 60 GiB in, and up to a look until it is asked for
    assert all(3.0e6 < each < 3.6e6 for each in latencies[1:]), latencies
    assert engine.rate(training) > 0.6


def test_who_is_parked_for_somebody_does_not_come_back_before_him() -> None:
    class Own(Policy):
        def on_memory_pressure(self, now, tenant):
            yield Park("t0", tenant, "mine")

    engine = Engine(GPU, "temporal", trainings(64, 64), Own())
    engine.run(4e6)
    assert [each.residence for each in engine.tenants] == ["parked", "home"]


def test_a_policy_parks_nobody_for_nothing() -> None:
    class Wrong(Policy):
        tick_us = 1e6

        def on_tick(self, now):
            yield Park("t0", "t1", "mine")

    engine = Engine(GPU, "temporal", trainings(10, 10), Wrong())
    engine.run(1.5e6)
    assert engine.reins is not None
    assert "t1 waits for no memory" in engine.reins.refused[0]


def test_what_fits_on_no_gpu_and_mps_are_refused() -> None:
    with pytest.raises(SimError, match="it fits on none"):
        Engine(GPU, "temporal", trainings(81))
    with pytest.raises(SimError, match="under MPS"):
        Engine(GPU, "mps", trainings(8))
