# SPDX-License-Identifier: Apache-2.0
"""One small case for the rule of each shipped policy, in detshare-sim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from detshare.ctl.core.classes import CLASSES
from detshare.ctl.policy.shipped.phases import DECODE, PREFILL
from detshare.ctl.policy.shipped.tpot_first import TpotFirst
from detshare.ctl.policy.types import Policy
from detshare.ctl.sim.arrivals import poisson
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS, LlmServer
from detshare.ctl.sim.policies import DAEMON, Pace, load_policy
from detshare.ctl.sim.services import Service
from detshare.ctl.sim.tenants import Open, Periodic, Saturate, Source, Tenant
from detshare.tools.bench.stats import percentile
from detshare.tools.results import Row

__all__ = ["rows", "served"]

SECOND: Final = 1e6


def classed(name: str, source: Source, klass: str, **more: object) -> Tenant:
    """A tenant as the class rule leaves it."""
    setting = CLASSES[klass]
    slice_us = 2048.0 if setting.slice_us is None else float(setting.slice_us)
    return Tenant(name, source, klass=klass, slice_us=slice_us, level=int(setting.level), **more)  # type: ignore[arg-type]


def run(
    gpu: Gpu, tenants: Sequence[Tenant], policy: Policy | str, seconds: float, lane: str = "temporal", hour: float = 0.0
) -> Engine:
    """So long under the policy, at the pace of a daemon."""
    made = load_policy(policy) if isinstance(policy, str) else policy
    engine = Engine(gpu, lane, tenants, made, seed=1, pace=DAEMON, hour=hour)
    engine.run(seconds * SECOND)
    return engine


def rows(gpu: Gpu, seed: int) -> list[Row]:
    """All cases."""
    return [
        *_static(gpu),
        *_slo_aware(gpu, seed),
        *_strict(gpu),
        *_fair(gpu),
        *_cost_aware(gpu),
        *_token_bucket(gpu),
        *_phases(gpu, seed),
        *_one_process(gpu, seed),
    ]


def _static(gpu: Gpu) -> Iterator[Row]:
    made = [classed("lc", Periodic(2700.0, 10_000.0), "high"), classed("be", Saturate(150.0), "low")]
    engine = run(gpu, made, "slo-aware", 20)
    assert engine.reins is not None
    yield Row("slo-aware: actions while nobody is late", engine.reins.done, "actions", None, "== 0")


def _late(gpu: Gpu, policy: str, seed: int) -> float:
    """Percent of requests of 20 ms that take longer than their 45 ms, beside two tenants of the same class."""
    times = np.cumsum(np.random.default_rng(seed).exponential(100_000.0, 190))
    source = Open(times, 20_000.0, kernels=100)
    urgent = classed("urgent", source, "normal", deadline_us=45_000.0, congestion_us=45_000.0)
    others = [classed(name, Saturate(500.0), "normal") for name in ("one", "two")]
    run(gpu, [urgent, *others], policy, 20)
    return 100.0 * float(np.mean(np.array(source.latencies) > 45_000.0))


def _slo_aware(gpu: Gpu, seed: int) -> Iterator[Row]:
    what = "slo-aware: requests of 20 ms later than 45 ms beside two others of their class"
    yield Row(what, _late(gpu, "slo-aware", seed), "%", _late(gpu, "static", seed), "< 1 x baseline")


def _strict(gpu: Gpu) -> Iterator[Row]:
    source = Periodic(2700.0, 10_000.0, sigma=0.05, seed=1)
    be = classed("be", Saturate(150.0), "low")
    run(gpu, [classed("lc", source, "high"), be], "strict", 20)
    yield Row(
        "strict: p50 of a request of 2.7 ms of class high beside class low", percentile(source.latencies, 50), "us"
    )
    high, low = classed("high", Saturate(150.0), "high"), classed("low", Saturate(150.0), "low")
    engine = run(gpu, [high, low], "strict", 20)
    yield Row(
        "strict: class low beside class high without rest", 100 * engine.rate(low), "%", 2.0, ">= 0.95 x baseline"
    )
    yield Row("strict: class high beside it", 100 * engine.rate(high), "%", None, ">= 95")


def _fair(gpu: Gpu) -> Iterator[Row]:
    weights = (1.0, 2.0, 5.0)
    made = [Tenant(f"t{index}", Saturate(500.0), weight=each) for index, each in enumerate(weights)]
    engine = run(gpu, made, "fair", 20)
    rates = [engine.rate(each) for each in made]
    worst = max(abs(rate / sum(rates) - each / sum(weights)) for rate, each in zip(rates, weights, strict=True))
    yield Row("fair: weights 1:2:5 in time: largest error of a share", 100 * worst, "points", None, "<= 1")
    made = [Tenant(f"t{index}", Saturate(500.0), weight=each) for index, each in enumerate(weights)]
    engine = run(gpu, made, "fair", 5, "spatial")
    error = max(abs(each.sms - gpu.sms * part / sum(weights)) for each, part in zip(made, weights, strict=True))
    yield Row("fair: weights 1:2:5 in SMs: largest error of a quota", error, "SMs", None, "<= 1")
    yield Row("fair: SMs given away, of those there are", float(sum(each.sms for each in made)), "SMs", float(gpu.sms),
              "== 1 x baseline")  # fmt: skip
    idle = [Tenant("busy", Saturate(500.0), weight=1.0), Tenant("idle", Open([0.0], 10.0), weight=9.0)]
    engine = run(gpu, idle, "fair", 5, "spatial")
    yield Row(
        "fair: a tenant beside an idle one of nine times its weight", 100 * engine.rate(idle[0]), "%", None, ">= 95"
    )


def _background(gpu: Gpu, hour: float) -> float:
    made = [classed(name, Saturate(150.0), "low") for name in ("one", "two")]
    engine = run(gpu, made, "cost-aware", 5, hour=hour)
    return 100.0 * sum(engine.rate(each) for each in made)


def _cost_aware(gpu: Gpu) -> Iterator[Row]:
    peak, cheap = _background(gpu, 12.0), _background(gpu, 23.0)
    yield Row("cost-aware: two of class low off-peak, of the GPU", cheap, "%", peak, "> 1 x baseline")


def _token_bucket(gpu: Gpu) -> Iterator[Row]:
    for klass, rate in (("low", 25.0), ("idle", 10.0)):
        only = classed(klass, Saturate(150.0), klass)
        share = 100 * run(gpu, [only], "token-bucket", 60).rate(only)
        # what was in the bucket at first comes on top: 0.1 s in 60
        what = f"token-bucket: class {klass}, with nobody beside it"
        yield Row(f"{what}: at most", share, "%", rate, "<= 1.05 x baseline")
        yield Row(f"{what}: at least", share, "%", rate, ">= 0.95 x baseline")


class _Watched(TpotFirst):
    """Compares the phase that it took a tenant for with what the simulator knows."""

    def __init__(self) -> None:
        super().__init__()
        self.right = self.seen = 0

    def on_tick(self, now):  # type: ignore[no-untyped-def]
        """One comparison for each active server."""
        found = list(super().on_tick(now))
        for view in now.tenants:
            if view.kind in (DECODE, PREFILL) and (phase := self.phase(now, view.name)):
                self.seen += 1
                self.right += phase == view.kind
        return found


def _phases(gpu: Gpu, seed: int) -> Iterator[Row]:
    for graphs in (True, False):
        server = LlmServer(MODELS["analytic-8b"], poisson(2.5, 60.0, seed), graphs=graphs)
        made = [
            Tenant("prefill", server.half(PREFILL), klass="", partner="decode"),
            Tenant("decode", server.half(DECODE), klass="", partner="prefill"),
            classed("training", Saturate(150.0), "low"),
        ]
        watched = _Watched()
        run(gpu, made, watched, 60)
        share = 100.0 * watched.right / max(1, watched.seen)
        what = f"tpot-first: phases recognised, {'with' if graphs else 'without'} graphs"
        yield Row(what, share, "%", None, ">= 95")


def _one_process(gpu: Gpu, seed: int) -> Iterator[Row]:
    """A server that does both phases in one process, beside a training; of neither anybody told a class."""
    limit_ms, found = 5.0, {}
    for policy in (load_policy("static"), TpotFirst(TpotFirst.Params(tpot_ms=limit_ms))):
        server = LlmServer(MODELS["measured-1.4b"], poisson(8.0, 60.0, seed), prefill_first=False)
        training = classed("training", Saturate(150.0), "normal")
        engine = run(gpu, [classed("llm", server, "normal"), training], policy, 60)
        tpot = server.served.tpot[~np.isnan(server.served.tpot)]
        late = 100.0 * float(np.mean(tpot > 1000 * limit_ms))
        found[type(policy)] = late, engine.rate(training)
    (late, rate), (was_late, was_rate) = found.pop(TpotFirst), *found.values()
    what = f"tpot-first: both phases in one process beside a training, neither with a class, {limit_ms:g} ms a token"
    yield Row(f"{what}: TPOT violations", late, "%", was_late, "<= 0.5 x baseline")
    yield Row(f"{what}: training", rate, "of alone", was_rate)


def served(names: set[str], services: Sequence[Service], gpu: Gpu, seed: int) -> tuple[int, int]:
    """Requests of a packed GPU whose tokens were late, and all that were finished, in a minute under policy fair."""
    by_name = {each.name: each for each in services}
    tenants, servers = [], []
    for index, name in enumerate(sorted(names)):
        base = name.partition("/")[0]
        service = by_name[base]
        replicas = 1
        if "/" in name:
            while service.part(replicas) > 1.0 or service.memory_gib(replicas) > gpu.memory_gib:
                replicas = max(replicas + 1, replicas * 5 // 4)
        rate = service.rate / replicas
        server = LlmServer(service.model, poisson(rate, 60.0, seed * 1000 + index, service.prompt, service.answer))
        servers.append((server, service.tpot_ms * 1000))
        tenants.append(Tenant(name, server, weight=max(0.01, service.part(replicas))))
    Engine(gpu, "temporal", tenants, load_policy("fair"), seed=seed, pace=Pace()).run(60 * SECOND)
    late = sum(int(np.nansum(server.served.tpot > limit)) for server, limit in servers)
    return late, sum(server.served.finished for server, _ in servers)
