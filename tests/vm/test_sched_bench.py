# SPDX-License-Identifier: Apache-2.0
"""The experiment `sched` runs, and what does not depend on how busy this machine is holds. In full: `bench sched`."""

from __future__ import annotations

from detshare.tools.bench.vm import sched
from detshare.tools.bench.vm.machines import SIM
from detshare.tools.bench.vm.report import Report

COUNTS = {"rings", "objects", "clients", "shadows", "reports", "lines"}


def test_doors_cost_nothing_lose_nothing_and_let_nothing_through() -> None:
    report = Report("sched", SIM.proof, "pytest (short form)")
    sched.measure(report, SIM, 1, ("idle", "gates", "events", "floors"))
    assert [row for row in report.missed if row.unit in COUNTS] == []
    (open_door,) = (row for row in report.rows if "no class that rings without rest: page faults" in row.what)
    assert open_door.ok
    (kicks,) = (row for row in report.rows if "event kick" in row.what and row.what.endswith("heard"))
    assert kicks.ok
