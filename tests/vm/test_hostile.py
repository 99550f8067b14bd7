# SPDX-License-Identifier: Apache-2.0
"""A tenant cannot undo what is ordered for it, nor reach its neighbour. All tricks: detshare bench hostile."""

from __future__ import annotations

import pytest

from detshare.tools.bench.vm import hostile
from detshare.tools.bench.vm.machines import SIM, SIM_61, Machine
from detshare.tools.bench.vm.report import Report

SOME = (
    *("own-slice", "own-slice-xfer", "own-slice-32bit", "own-slice-race", "own-slice-raw"),
    *("own-slice-dup", "own-slice-dup-twice"),
    *("resume", "resume-binapi", "new-group", "second-mapping", "proc-mem", "uvm-door", "descriptor"),
    *("other-off", "other-off-keys", "other-off-class", "other-slice-raw", "other-numbers"),
)


@pytest.mark.parametrize(
    ("machine", "who"),
    [
        pytest.param(SIM, "root", id="6.12 root"),
        pytest.param(SIM_61, "user", id="6.1 user", marks=pytest.mark.thorough),
    ],
)
def test_no_trick_works_and_the_neighbour_does_not_notice(machine: Machine, who: str) -> None:
    report = Report("hostile", machine.proof, "pytest (short form)")
    hostile.measure(report, machine, (who,), SOME)
    assert report.missed == []
