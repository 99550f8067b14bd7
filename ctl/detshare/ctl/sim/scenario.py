# SPDX-License-Identifier: Apache-2.0
"""One language model server beside a training on one GPU, once per seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from detshare.ctl.policy.types import Policy
from detshare.ctl.sim.arrivals import Trace
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import LlmModel, LlmServer
from detshare.ctl.sim.policies import AT_ONCE, Pace
from detshare.ctl.sim.profile import Profile
from detshare.ctl.sim.report import figures
from detshare.ctl.sim.tenants import Saturate, Tenant

__all__ = ["SCHEMES", "Scenario", "window"]

SCHEMES: Final = {
    "alone": "the server only",
    "time-slicing": "both with slices of 2048 us",
    "temporal": "classes high (20 ms, level high) and low (50 us, level low)",
    "mps": "MPS without a split, at the slowdowns of the profile",
    "hold": "spatial lane: the training held while the server is active",
    "split": "spatial lane: half of the SMs each",
}
TRAINING_KERNEL_US: Final = 150.0


def window(trace: Trace, seconds: float, seed: int, speed: float = 1.0) -> Trace:
    """A part of a recorded trace, from a moment that the seed draws."""
    times = trace.times / speed
    latest = max(0.0, float(times[-1]) - seconds)
    begin = float(np.random.default_rng(seed).uniform(0, latest)) if latest else 0.0
    keep = (times >= begin) & (times < begin + seconds)
    if not keep.any():
        raise SimError(
            f"trace {trace.name}: no request between {begin:.1f} and {begin + seconds:.1f} s; use more --seconds"
        )
    return Trace(trace.name, times[keep] - begin, trace.prompt[keep], trace.answer[keep], trace.skipped)


@dataclass(frozen=True)
class Scenario:
    """What is simulated; ``trace`` makes the requests of a seed."""

    model: LlmModel
    trace: Callable[[int], Trace]
    seconds: float
    profile: Profile
    ttft_ms: float = 500.0
    tpot_ms: float = 50.0
    prefill_first: bool = True
    policy: Callable[[], Policy] | None = None
    pace: Pace = AT_ONCE
    memory_gib: tuple[float, float] = (0.0, 0.0)
    """of the server and of the training"""

    def run(self, scheme: str, seed: int) -> dict[str, float]:
        """All figures of one seed; SimError for a scheme that is none."""
        if scheme not in SCHEMES:
            raise SimError(f"scheme {scheme!r} is none: use {', '.join(SCHEMES)}")
        gpu = replace(
            Gpu(), switch_us=self.profile.switch_us, young=self.profile.young, first_end=self.profile.first_end
        )
        server = LlmServer(self.model, self.trace(seed), prefill_first=self.prefill_first)
        llm = Tenant("llm", server, klass="high", congestion_us=self.ttft_ms * 1000)
        training = Tenant("training", Saturate(TRAINING_KERNEL_US), klass="low")
        llm.memory_gib, training.memory_gib = self.memory_gib
        lane = {"mps": "mps", "hold": "spatial", "split": "spatial"}.get(scheme, "temporal")
        if scheme == "temporal":
            llm.slice_us, llm.level, training.slice_us, training.level = 20_000.0, 2, 50.0, 0
        elif scheme == "mps":
            beside = self.profile.pair["MPS"]
            llm.slowed = {"training": beside["lc"]}
            training.slowed = {"llm": 1 / beside["be"]}
        elif scheme == "hold":
            training.reflex = 0
        elif scheme == "split":
            llm.sms = training.sms = gpu.sms // 2
            llm.slowed = {"training": self.profile.pair["64 SMs"]["lc"]}
        tenants = [llm] if scheme == "alone" else [llm, training]
        engine = Engine(gpu, lane, tenants, self.policy() if self.policy else None, seed=seed, pace=self.pace)
        engine.run(self.seconds * 1e6)
        found = figures(server, engine.now, self.ttft_ms, self.tpot_ms)
        found["training, of alone"] = engine.rate(training)
        found["GPU busy %"] = 100.0 * engine.busy / engine.now
        if engine.memory is not None:
            found["parks"] = float(engine.memory.parks)
            found["bus copies %"] = 100.0 * engine.memory.copied_us / engine.now
        found["launches"] = float(engine.launches())
        found["actions refused"] = float(len(engine.reins.refused)) if engine.reins else 0.0
        return found
