# SPDX-License-Identifier: Apache-2.0
"""Everything at once leaves nothing behind and loses no launch. For half an hour: detshare bench stress.

On the instrumented kernel where it is in the cache (detshare-vm prepare --kernel debug); elsewhere on a stock kernel,
which finds less.
"""

from __future__ import annotations

import os
import warnings

import pytest

from detshare.tools.bench.vm import stress
from detshare.tools.bench.vm.machines import SIM, SIM_73, SIM_DEBUG
from detshare.tools.bench.vm.report import Report
from detshare.tools.vm import kernels

SECONDS = 120
SEED = int(os.environ.get("DETSHARE_STRESS_SEED", "1"))


@pytest.mark.alone
def test_random_orders_births_deaths_and_reloads_leave_nothing() -> None:
    machine = SIM_DEBUG if kernels.cached(kernels.DEBUG) else SIM
    if machine is SIM:
        warnings.warn("no debug kernel in the cache: neither KASAN, lockdep nor kmemleak watch this run", stacklevel=1)
    report = Report("stress", machine.proof, f"pytest (short form), seed {SEED}")
    stress.measure(report, machine, SECONDS, SEED)
    assert report.missed == []


@pytest.mark.alone
@pytest.mark.thorough
def test_the_newest_kernel_too() -> None:
    report = Report("stress", SIM_73.proof, f"pytest (short form), seed {SEED}")
    stress.measure(report, SIM_73, SECONDS, SEED)
    assert report.missed == []
