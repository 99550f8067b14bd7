# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ctl.sim.engine import LANES, Engine
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.fifo import fifo
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.tenants import Open, Periodic, Saturate, Tenant

END = 50_000.0
US = st.floats(5, 3000)


@st.composite
def tenants(draw: st.DrawFn) -> list[Tenant]:
    made = []
    for index in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("open", "periodic", "saturate")))
        if kind == "open":
            times = sorted(draw(st.lists(st.floats(0, END), max_size=15)))
            source: Open | Periodic | Saturate = Open(times, draw(US), kernels=draw(st.integers(1, 20)))
        elif kind == "periodic":
            source = Periodic(draw(US), draw(st.floats(0, 5000)), sigma=0.1, seed=index)
        else:
            source = Saturate(draw(US), chunk=draw(st.integers(1, 100)))
        made.append(
            Tenant(
                f"t{index}",
                source,
                klass=draw(st.sampled_from(("low", "normal", "high"))),
                sms=draw(st.integers(0, 132)),
                slice_us=draw(st.floats(20, 5000)),
                level=draw(st.integers(0, 2)),
                reflex=draw(st.none() | st.integers(0, 132)),
                blocks=draw(st.integers(1, 8)),
            )
        )
    return made


class Watched(Engine):
    """Looks after each step."""

    def _step(self, until: float) -> None:
        before = self.now
        super()._step(until)
        assert before <= self.now <= until


@settings(max_examples=30, deadline=None)
@given(tenants(), st.sampled_from(sorted(LANES)))
def test_time_never_goes_back_and_no_quota_is_exceeded(made: list[Tenant], lane: str) -> None:
    engine = Watched(Gpu(), lane, made)
    engine.run(END)
    assert engine.now == END
    assert sum(tenant.sm_us for tenant in made) <= 132 * END * (1 + 1e-9)
    for tenant in made:
        assert tenant.over_quota <= 1e-9
        assert tenant.peak_sms <= 132 + 1e-9
        if lane == "spatial" and tenant.sms:
            assert tenant.peak_sms <= tenant.sms + 1e-9


@settings(max_examples=30, deadline=None)
@given(tenants(), st.sampled_from(("temporal", "mps")))
def test_the_gpu_works_while_there_is_work(made: list[Tenant], lane: str) -> None:
    """Work done is time busy, and what was neither busy nor idle is context switches."""
    engine = Engine(Gpu(), lane, made)
    engine.run(END)
    assert sum(tenant.worked for tenant in made) == pytest.approx(engine.busy, abs=1.0)
    switches = engine.lane.switches if lane == "temporal" else 0  # type: ignore[attr-defined]
    assert engine.waited <= switches * Gpu().switch_us + 1.0
    if any(isinstance(tenant.source, Saturate) for tenant in made):
        assert engine.busy + engine.waited == pytest.approx(END, abs=1.0)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(sorted(LANES)))
def test_equal_seeds_give_equal_runs(data: st.DataObject, lane: str) -> None:
    def once(seed: int) -> tuple[list[float], float]:
        periodic = Periodic(us, 1500.0, sigma=0.2, seed=seed)
        lc = Tenant("lc", periodic, klass="high", blocks=1)
        engine = Engine(Gpu(), lane, [lc, Tenant("be", Saturate(be), klass="low", blocks=8, reflex=64)], seed=seed)
        engine.run(END)
        return periodic.latencies, engine.tenants[1].worked

    us, be = data.draw(US), data.draw(US)
    assert once(7) == once(7)
    assert once(7) != once(8)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0.5, 500)), min_size=1, max_size=40))
def test_the_event_engine_and_the_closed_form_agree_on_one_tenant(work: list[tuple[float, float]]) -> None:
    asked = np.sort(np.array([time for time, _ in work]))
    us = np.array([length for _, length in work])
    source = Open(asked, us)
    Engine(Gpu(), "spatial", [Tenant("only", source)]).run(1e6)
    assert source.latencies == pytest.approx(list(fifo(asked, us) - asked), abs=0.01 * len(work))


@settings(max_examples=25, deadline=None)
@given(tenants(), st.sampled_from(sorted(LANES)))
def test_every_launch_is_done_once(made: list[Tenant], lane: str) -> None:
    for tenant in made:  # nobody is held for ever, and all work ends
        tenant.reflex = None
    kept = [tenant for tenant in made if isinstance(tenant.source, Open)]
    engine = Engine(Gpu(), lane, kept)
    engine.run(1e9)
    for tenant in kept:
        source = tenant.source
        assert isinstance(source, Open)
        assert len(source.latencies) == len(source._times)
        assert tenant.launches == len(source._times) * source._kernels
        assert all(latency > 0 for latency in source.latencies)


def test_two_equal_tenants_lose_one_switch_each_slice() -> None:
    made = [Tenant(name, Saturate(500.0), slice_us=2000.0) for name in "ab"]
    engine = Engine(Gpu(switch_us=200.0), "temporal", made)
    engine.run(4.4e6)
    assert engine.rate(made[0]) == pytest.approx(2000 / 4400, rel=1e-3)
    assert engine.rate(made[1]) == pytest.approx(2000 / 4400, rel=1e-3)


def test_a_held_tenant_stops_at_a_kernel_boundary_and_only_there() -> None:
    low = Tenant("low", Saturate(300.0), klass="low", reflex=0)
    high = Tenant("high", Open([1000.0], 2000.0), klass="high")
    engine = Engine(Gpu(), "spatial", [low, high])
    engine.run(2500.0)
    assert low.worked == pytest.approx(1200.0)  # the fourth kernel went on to its end, beside high
    engine.run(20_000.0)
    assert low.worked > 10_000


@pytest.mark.parametrize("lane", ["spatial", "temporal"])
def test_a_gate_that_is_shut_holds(lane: str) -> None:
    shut = Tenant("shut", Saturate(10.0), gate_open=False)
    engine = Engine(Gpu(), lane, [shut, Tenant("other", Saturate(10.0))])
    engine.run(1e5)
    assert shut.worked == 0
    assert engine.rate(engine.tenants[1]) == pytest.approx(1.0, abs=0.01)


def test_a_source_that_never_lets_time_go_on_is_an_error() -> None:
    with pytest.raises(SimError, match="time stands still"):
        Engine(Gpu(), "spatial", [Tenant("none", Saturate(1e-9, chunk=1))]).run(1e3)


def test_bad_engines_are_refused() -> None:
    with pytest.raises(SimError, match="lane 'x' is none"):
        Engine(Gpu(), "x", [])
    with pytest.raises(SimError, match="one name"):
        Engine(Gpu(), "mps", [Tenant("a", Saturate(1.0)), Tenant("a", Saturate(1.0))])
    with pytest.raises(SimError, match="133 SMs"):
        Engine(Gpu(), "mps", [Tenant("a", Saturate(1.0), sms=133)])


def test_a_waker_finds_the_other_anywhere_in_its_slice() -> None:
    """Waits lie between a switch and a slice more, although period and slice are both exact."""
    waker = Periodic(10.0, 10_000.0)
    engine = Engine(Gpu(), "temporal", [Tenant("lc", waker), Tenant("be", Saturate(100.0))], seed=1)
    engine.run(1e6)
    waits = np.array(waker.latencies[1:]) - 10.0
    assert 200 <= waits.min() < 500
    assert 1900 < waits.max() <= 2248.1
