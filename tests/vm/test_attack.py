# SPDX-License-Identifier: Apache-2.0
"""Nobody gets more than the limit by changing a call under way. For 10 minutes: detshare bench quota-attack."""

from __future__ import annotations

from detshare.tools.bench.vm import quota_attack
from detshare.tools.bench.vm.report import Report


def measured(seconds: float, **named: int) -> Report:
    report = Report("quota-attack", "model", "pytest (short form)")
    quota_attack.measure(report, seconds, 5, **named)
    return report


def test_sixty_seconds_of_eight_threads_win_nothing() -> None:
    assert measured(60, threads=8).missed == []


def test_two_processes_of_one_tenant_win_nothing() -> None:
    assert measured(12, threads=4, processes=2, seed=7).missed == []
