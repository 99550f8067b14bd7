# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ctl.core.classes import CLASSES
from detshare.ctl.policy.registry import SHIPPED
from detshare.ctl.policy.types import Bind, ClassRow, Move, PCtx, Policy, Slice
from detshare.ctl.sim import arrivals, fleet, services
from detshare.ctl.sim.arrivals import poisson
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS, LlmServer
from detshare.ctl.sim.policies import DAEMON, Pace, load_policy
from detshare.ctl.sim.tenants import Open, Periodic, Saturate, Tenant

GPU = Gpu(switch_us=210.0)
SECONDS = 2.0


def classed(name: str, klass: str, source: Periodic | Saturate | Open | None = None) -> Tenant:
    setting = CLASSES[klass]
    slice_us = 2048.0 if setting.slice_us is None else float(setting.slice_us)
    return Tenant(name, source or Saturate(150.0), klass=klass, slice_us=slice_us, level=int(setting.level))


def bound(tenants: list[Tenant], mine: Tenant, policy: str) -> float:
    """The part of the GPU that a tenant with work gets at least: each policy's own, and docs/how/class-numbers.md."""
    if policy == "strict":
        return {"high": 0.0, "normal": 0.1, "low": 0.02, "idle": 0.01}[mine.klass] / sum(
            each.klass == mine.klass for each in tenants
        )
    if policy == "fair":
        weights = {"high": 8.0, "normal": 4.0, "low": 1.0, "idle": 1.0}
        return 0.8 * weights[mine.klass] / sum(weights[each.klass] for each in tenants)
    counts = [sum(each.level == level for each in tenants) for level in (0, 1, 2)]
    low, medium, high = max(1, counts[0]), counts[1], counts[2]
    wait = high * (medium + 1) * low * 20_210.0 + medium * low * 5_210.0 + (low - 1) * 5_210.0
    return 0.5 * 20.0 / (wait + 230.0)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(SHIPPED)), st.lists(st.sampled_from(sorted(CLASSES)), min_size=2, max_size=4))
def test_no_class_starves_beyond_its_bound(name: str, classes: list[str]) -> None:
    tenants = [classed(f"t{index}", klass) for index, klass in enumerate(classes)]
    wanted = [bound(tenants, each, name) for each in tenants]
    engine = Engine(GPU, "temporal", tenants, load_policy(name), pace=DAEMON, hour=12.0)
    engine.run(SECONDS * 1e6)
    assert engine.reins is not None
    assert engine.reins.refused == []
    for each, least in zip(tenants, wanted, strict=True):
        assert engine.rate(each) >= 0.9 * least, (each.klass, engine.rate(each), least)


@pytest.mark.parametrize("name", sorted(SHIPPED))
@pytest.mark.parametrize("lane", ["temporal", "spatial", "mps"])
def test_a_shipped_policy_has_nothing_refused_but_rows_outside_the_temporal_lane(name: str, lane: str) -> None:
    tenants = [classed("a", "high", Periodic(500.0, 5000.0)), classed("b", "low"), classed("c", "normal")]
    pool = [PCtx("own", 32, exclusive=True), PCtx("half", 66), PCtx("all", 132)]
    engine = Engine(GPU, lane, tenants, load_policy(name), pool=pool, pace=DAEMON, hour=23.0)
    engine.run(1e6)
    assert engine.reins is not None
    refused = [line for line in engine.reins.refused if "ClassRow" not in line and "MPS without" not in line]
    if lane == "mps":  # no slices, no quotas: what cannot be done is refused, and the simulation goes on
        refused = []
    assert refused == []
    assert all(len(each.bound) <= 1 for each in engine.pool.values() if each.exclusive)
    if lane == "temporal":
        assert engine.reins.refused == []


def test_a_foreground_without_gaps_leaves_those_with_turns_their_floor() -> None:
    class Rows(Policy):
        def on_attach(self, now, tenant):  # type: ignore[no-untyped-def]
            return [ClassRow("low", turn_us=100_000, floor_permille=50)]

    high, low = classed("high", "high"), classed("low", "low")
    engine = Engine(GPU, "temporal", [high, low], Rows())
    engine.run(10e6)
    assert engine.rate(low) == pytest.approx(0.05, abs=0.005)
    assert engine.rate(high) >= 0.93
    quiet = classed("high", "high", Open([0.0], 10.0))
    other = classed("low", "low")
    alone = Engine(GPU, "temporal", [quiet, other], Rows())
    alone.run(1e6)
    assert alone.rate(other) >= 0.99  # nobody is held while nobody of a higher class works


def test_the_highest_class_that_wants_the_gpu_has_all_turns() -> None:
    class Rows(Policy):
        def on_attach(self, now, tenant):  # type: ignore[no-untyped-def]
            return [ClassRow(each, turn_us=100_000, floor_permille=50) for each in ("normal", "low")]

    normal, low = classed("normal", "normal"), classed("low", "low")
    engine = Engine(GPU, "temporal", [normal, low], Rows())
    engine.run(10e6)
    assert engine.rate(low) == pytest.approx(0.05, abs=0.005)
    assert engine.rate(normal) >= 0.93
    resting = classed("normal", "normal", Periodic(10_000.0, 50_000.0))
    other = classed("low", "low")
    beside = Engine(GPU, "temporal", [resting, other], Rows())
    beside.run(10e6)
    assert beside.rate(other) == pytest.approx(0.78, abs=0.03)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ClassRow("nobody", turn_us=1), "no class 'nobody'"),
        (ClassRow("low", turn_us=1, floor_permille=5), "floor of 10"),
    ],
)
def test_a_row_that_cannot_be_is_refused(row: ClassRow, says: str) -> None:
    class Wrong(Policy):
        def on_attach(self, now, tenant):  # type: ignore[no-untyped-def]
            return [row]

    engine = Engine(GPU, "temporal", [classed("a", "high")], Wrong())
    engine.run(1000.0)
    assert engine.reins is not None
    assert says in engine.reins.refused[0]


def test_a_slow_policy_acts_late_and_hears_less() -> None:
    class Count(Policy):
        heard = 0

        def on_launch(self, now, tenant):  # type: ignore[no-untyped-def]
            self.heard += 1
            return [Slice(tenant, 777.0, 1)]

    for pace, heard, late in ((Pace(), 100, 0.0), (Pace(5000.0, 100_000.0), 10, 5000.0)):
        policy, lc = Count(), classed("lc", "normal", Periodic(100.0, 10_000.0))
        engine = Engine(GPU, "temporal", [lc], policy, pace=pace)
        engine.run(late + 1.0)
        assert lc.slice_us == 777.0 if late == 0 else 2048.0
        engine.run(999_999.0)
        assert lc.slice_us == 777.0
        assert policy.heard == heard


def test_an_exclusive_member_takes_one_tenant_and_gives_it_its_sms() -> None:
    class Mover(Policy):
        def on_attach(self, now, tenant):  # type: ignore[no-untyped-def]
            return [Move(tenant, "own")]

        def on_tick(self, now):  # type: ignore[no-untyped-def]
            return [Bind("a", 8), Move("b", "own"), Move("b", "none")]

    policy = Mover()
    policy.tick_us = 5e5
    a, b = classed("a", "normal"), classed("b", "normal")
    engine = Engine(GPU, "spatial", [a, b], policy, pool=[PCtx("own", 32, exclusive=True)])
    engine.run(1000.0)
    assert (a.sms, a.pctx, b.pctx) == (32, "own", "")
    engine.run(6e5)
    assert (a.sms, a.pctx, b.sms, b.pctx) == (8, "", 32, "own")
    assert engine.reins is not None
    assert ["own is exclusive" in engine.reins.refused[0], "member of the pool" in engine.reins.refused[-1]] == [
        True,
        True,
    ]


def test_two_halves_serve_what_one_server_serves() -> None:
    model, trace = MODELS["measured-1.4b"], poisson(3.0, 20.0, 1)
    server = LlmServer(model, trace)
    prefill = Tenant("prefill", server.half("prefill"), partner="decode")
    decode = Tenant("decode", server.half("decode"), partner="prefill")
    Engine(GPU, "temporal", [prefill, decode]).run(60e6)
    assert server.served.finished == len(trace)
    assert server.served.tokens == int(trace.answer.sum())
    assert server.served.prompt_tokens == int(trace.prompt.sum())
    assert not np.isnan(server.served.ttft).any()
    assert server.kv == 0


def test_what_a_policy_sees_of_a_server_is_what_it_launches() -> None:
    class Look(Policy):
        seen: list[tuple[str, int, int]] = []

        def on_launch(self, now, tenant):  # type: ignore[no-untyped-def]
            view = now.tenants[0]
            self.seen.append((view.kind, view.graph_launches, view.blocks))
            self.shapes = view.shapes
            return ()

    policy = Look()
    server = LlmServer(MODELS["measured-1.4b"], arrivals.Trace("one", np.array([0.0]), np.array([1000]), np.array([4])))
    Engine(GPU, "temporal", [Tenant("llm", server, klass="")], policy).run(1e6)
    assert policy.seen == [("prefill", 0, 512), ("decode", 1, 64), ("decode", 2, 64), ("decode", 3, 64)]
    by_name = {each.name: each for each in policy.shapes}
    assert by_name["graph"].count == 2  # of the third it was told at its launch
    assert 2048 <= by_name["graph"].p50_us <= 4096
    assert by_name[""].blocks == 512


def test_gamma_arrivals_come_in_bunches_at_their_rate() -> None:
    trace = arrivals.gamma(10.0, 2000.0, 1)
    gaps = np.diff(trace.times)
    assert len(trace) == pytest.approx(20_000, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.1)
    with pytest.raises(SimError, match="cannot vary by 0"):
        arrivals.gamma(1.0, 1.0, 1, variation=0.0)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 300), st.floats(10, 4000), st.floats(2, 1000), st.sampled_from(sorted(MODELS)))
def test_replicas_fit_on_a_gpu_and_their_tokens_come_in_time(
    rate: float, prompt: float, answer: float, name: str
) -> None:
    service = services.Service("s", MODELS[name], rate, prompt, answer, 50.0)
    found = services.demands([service], GPU)
    assert len({each.name for each in found}) == len(found)
    for demand in found:
        assert demand.sms <= GPU.sms + 1e-9
        assert demand.memory_gib <= GPU.memory_gib
    assert fleet.pack(found, GPU).gpus <= len(found)


def test_a_limit_that_no_gpu_can_keep_is_named(tmp_path: Path) -> None:
    with pytest.raises(SimError, match="service s: a token of analytic-8b cannot come within 5 ms"):
        services.demands([services.Service("s", MODELS["analytic-8b"], 1, 1000, 100, 5.0)], GPU)
    path = tmp_path / "services.csv"
    path.write_text("name,model,rate,prompt,answer,tpot_ms\na,analytic-8b,1,1000,200,50\nb,gpt,1,1,1,1\n")
    with pytest.raises(SimError, match=r"services.csv:3: model is 'gpt'"):
        services.read(path)
    path.write_text("name,model,rate,prompt,answer,tpot_ms\na,analytic-8b,0,1000,200,50\n")
    with pytest.raises(SimError, match=r":2: rate, prompt, answer, tpot_ms must be above 0"):
        services.read(path)
