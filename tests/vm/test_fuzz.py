# SPDX-License-Identifier: Apache-2.0
"""Random ioctls get the same answers with detshare.ko as without. A million of them: detshare bench fuzz."""

from __future__ import annotations

import pytest

from detshare.tools.bench.vm import fuzz
from detshare.tools.bench.vm.machines import MACHINES
from detshare.tools.bench.vm.report import Report


@pytest.mark.parametrize(("machine", "calls", "seeds"), [("sim", 8000, (1, 2)), ("535", 8000, (1,))])
def test_the_module_changes_no_answer(machine: str, calls: int, seeds: tuple[int, ...]) -> None:
    report = Report("fuzz", MACHINES[machine].proof, "pytest (short form)")
    fuzz.measure(report, MACHINES[machine], calls, seeds)
    assert report.missed == []
