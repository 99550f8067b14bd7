# SPDX-License-Identifier: Apache-2.0
"""A policy on a server in two processes, prefill and decode, beside a training on one GPU; once per seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from detshare.ctl.policy.shipped.phases import DECODE, PREFILL
from detshare.ctl.policy.types import HOOKS, Action, Policy
from detshare.ctl.sim.arrivals import Trace
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import LlmModel, LlmServer
from detshare.ctl.sim.policies import DAEMON, Pace, load_policy
from detshare.ctl.sim.report import figures
from detshare.ctl.sim.tenants import Saturate, Tenant

__all__ = ["Study", "Timed"]

TRAINING_KERNEL_US: Final = 150.0


@dataclass
class Timed(Policy):
    """A policy whose calls are timed."""

    inner: Policy
    clock: Callable[[], float] = time.thread_time
    calls: list[float] = field(default_factory=list)
    """seconds of CPU of each"""

    def __post_init__(self) -> None:
        self.tick_us = self.inner.tick_us
        for hook in HOOKS:
            setattr(self, hook, self._timed(getattr(self.inner, hook)))

    def _timed(self, hook: Callable[..., Iterable[Action]]) -> Callable[..., list[Action]]:
        def call(*arguments: Any) -> list[Action]:
            begin = self.clock()
            actions = list(hook(*arguments))
            self.calls.append(self.clock() - begin)
            return actions

        return call


@dataclass(frozen=True)
class Study:
    """What is simulated: nobody has a class but the training, which is low, so the default is plain time-slicing."""

    model: LlmModel
    trace: Callable[[int], Trace]
    seconds: float
    gpu: Gpu
    ttft_ms: float
    tpot_ms: float
    pace: Pace = DAEMON

    def run(
        self, policy: str, seed: int, params: Mapping[str, str] | None = None, slice_us: float = 2048.0
    ) -> dict[str, float]:
        """All figures of one seed."""
        server = LlmServer(self.model, self.trace(seed))
        prefill = Tenant("prefill", server.half(PREFILL), klass="", partner="decode", slice_us=slice_us)
        decode = Tenant("decode", server.half(DECODE), klass="", partner="prefill", slice_us=slice_us)
        training = Tenant("training", Saturate(TRAINING_KERNEL_US), klass="low", slice_us=50.0, level=0)
        timed = Timed(load_policy(policy, params))
        engine = Engine(self.gpu, "temporal", [prefill, decode, training], timed, seed=seed, pace=self.pace)
        engine.run(self.seconds * 1e6)
        found = figures(server, engine.now, self.ttft_ms, self.tpot_ms)
        assert engine.reins is not None
        found["training, of alone"] = engine.rate(training)
        found["GPU busy %"] = 100.0 * engine.busy / engine.now
        found["actions a second"] = engine.reins.done / self.seconds
        found["actions refused"] = float(len(engine.reins.refused))
        found["calls: p99"] = 1e6 * float(np.percentile(timed.calls, 99))
        found["calls: longest"] = 1e6 * max(timed.calls)
        return found
