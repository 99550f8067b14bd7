# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is: launches and events a second of one core's time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from detshare.ctl.sim.arrivals import poisson
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.fifo import fifo
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS, LlmServer
from detshare.ctl.sim.tenants import Periodic, Saturate, Tenant

__all__ = ["Speed", "measure"]


@dataclass(frozen=True)
class Speed:
    """One case."""

    what: str
    launches_per_s: float
    events_per_s: float


def _engine(what: str, engine: Engine, until: float, clock: Callable[[], float]) -> Speed:
    begin = clock()
    engine.run(until)
    took = max(clock() - begin, 1e-9)
    return Speed(what, engine.launches() / took, engine.events / took)


def measure(clock: Callable[[], float]) -> list[Speed]:
    """Three cases: below two seconds in all."""
    llm = Tenant("llm", LlmServer(MODELS["measured-1.4b"], poisson(4.0, 20.0, 1)), klass="high")
    beside = Tenant("training", Saturate(150.0), klass="low", slice_us=50.0, level=0)
    llm.slice_us, llm.level = 20_000.0, 2
    found = [_engine("decode and training in the temporal lane", Engine(Gpu(), "temporal", [llm, beside]), 20e6, clock)]
    lc = Tenant("lc", Periodic(50.0, 2000.0), blocks=1)
    be = Tenant("be", Saturate(104.0), blocks=8)
    found.append(_engine("every kernel an event: MPS, block by block", Engine(Gpu(), "mps", [lc, be]), 2e6, clock))
    random = np.random.default_rng(1)
    count = 2_000_000
    asked, us = np.cumsum(random.exponential(60.0, count)), random.exponential(50.0, count)
    begin = clock()
    fifo(asked, us)
    took = max(clock() - begin, 1e-9)
    found.append(Speed("unequal kernels of one tenant on its own SMs", count / took, count / took))
    return found
