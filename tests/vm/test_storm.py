# SPDX-License-Identifier: Apache-2.0
"""Clients killed in mid-allocation leave nothing behind. How soon, and with 1000 of them: detshare bench kill-storm."""

from __future__ import annotations

import pytest

from detshare.tools.bench.vm import kill_storm
from detshare.tools.bench.vm.report import Report


@pytest.mark.alone
def test_everything_of_a_killed_client_goes() -> None:
    report = Report("kill-storm", "model", "pytest (short form)")
    kill_storm.measure(report, singles=8, groups=2, size=40)
    assert report.rows
    assert [row for row in report.missed if row.unit != "ms"] == []
