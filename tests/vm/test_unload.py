# SPDX-License-Identifier: Apache-2.0
"""detshare.ko comes and goes while programs call the driver. A hundred times: detshare bench unload."""

from __future__ import annotations

import pytest

from detshare.tools.bench.vm import unload
from detshare.tools.bench.vm.machines import MACHINES
from detshare.tools.bench.vm.report import Report

ROUNDS = 4


# in CI the genuine 550 comes and goes in test_interception.py
ALL = [pytest.param(name, marks=[pytest.mark.thorough] if name == "550" else []) for name in MACHINES]


@pytest.mark.parametrize("machine", ALL)
def test_in_and_out_below_eight_calling_processes(machine: str) -> None:
    report = Report("unload", MACHINES[machine].proof, "pytest (short form)")
    unload.measure(report, MACHINES[machine], ROUNDS)
    assert report.missed == []
