# SPDX-License-Identifier: Apache-2.0
"""MPS by waves gives what MPS block by block gave: the same launches at the same moments, to within rounding."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from by_block import BlockByBlock

from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.tenants import Open, Periodic, Saturate, Tenant

END = 30_000.0
ROUNDING = 0.1
"""microseconds: the end of a block is known to `EPS`, and a case has some tens of kernels one behind the other"""


@dataclass
class Case:
    """One tenant, to be made twice."""

    kind: str
    us: float
    period: float
    kernels: int
    blocks: int
    seed: int

    def made(self, name: str) -> Tenant:
        source: Open | Periodic | Saturate
        if self.kind == "open":
            times = np.cumsum(np.random.default_rng(self.seed).exponential(self.period, 12))
            source = Open(times, self.us, kernels=self.kernels)
        elif self.kind == "periodic":
            source = Periodic(
                self.us, self.period, kernels=self.kernels, sigma=0.2, seed=self.seed, start=self.period / 3
            )
        else:
            source = Saturate(self.us, chunk=self.kernels * 3)
        return Tenant(name, source, blocks=self.blocks)


# Where the blocks of two kernels end within `EPS` of each other, rounding decides whose next block has the slot. So no
# round numbers, and the same cases each time: of some thousand, one is such a one all the same.
US = st.integers(30, 2000).map(lambda whole: whole * 1.0173)
CASES = st.lists(
    st.builds(
        Case,
        kind=st.sampled_from(("open", "periodic", "saturate")),
        us=US,
        period=st.integers(100, 6000).map(lambda whole: whole * 1.0091),
        kernels=st.integers(1, 6),
        blocks=st.integers(0, 10),
        seed=st.integers(0, 99),
    ),
    min_size=1,
    max_size=4,
)


def told(engine: Engine) -> list[dict[str, Any]]:
    found = []
    for tenant in engine.tenants:
        found.append(
            {
                "launches": tenant.launches,
                "worked": tenant.worked,
                "sm_us": tenant.sm_us,
                "peak": tenant.peak_sms,
                "latencies": getattr(tenant.source, "latencies", []),
            }
        )
    return found


@settings(max_examples=100, deadline=None, derandomize=True)
@given(CASES, st.sampled_from((Gpu(), Gpu(slots=5, young=0.35, first_end=0.7), Gpu(slots=16))))
def test_waves_are_what_blocks_are(cases: list[Case], gpu: Gpu) -> None:
    by_wave = Engine(gpu, "mps", [case.made(f"t{n}") for n, case in enumerate(cases)])
    by_block = BlockByBlock(gpu, [case.made(f"t{n}") for n, case in enumerate(cases)])
    by_wave.run(END)
    by_block.run(END)
    assert by_wave.busy == pytest.approx(by_block.busy, abs=ROUNDING)
    for ours, theirs in zip(told(by_wave), told(by_block), strict=True):
        assert len(ours["latencies"]) == len(theirs["latencies"])
        assert ours["latencies"] == pytest.approx(theirs["latencies"], abs=ROUNDING)
        assert ours["launches"] == theirs["launches"]
        assert ours["worked"] == pytest.approx(theirs["worked"], abs=ROUNDING)
        assert ours["sm_us"] == pytest.approx(theirs["sm_us"], abs=ROUNDING * gpu.sms)
        assert ours["peak"] == pytest.approx(theirs["peak"], abs=1e-6)
