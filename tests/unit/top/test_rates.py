# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from top_fakes import program, snapshot, spatial

from detshare.ctl.top.rates import Rates


def look(rates: Rates, when: float, **more: Any) -> dict[str, Any]:
    made = snapshot(program(**more), taken=when)
    rates.add_to(made)
    found: dict[str, Any] = made["programs"][0].get("rates", {})
    return found


def test_rates_of_the_spatial_lane_come_from_two_looks() -> None:
    rates = Rates()
    first = look(rates, 10.0, spatial=spatial(launches=1000, graph_launches=5, held_ms=100.0))
    assert (first["launches_per_s"], first["held"]) == (None, None)
    again = look(rates, 12.0, spatial=spatial(launches=1400, graph_launches=15, held_ms=600.0))
    assert again["launches_per_s"] == pytest.approx(205.0)
    assert again["held"] == pytest.approx(0.25)


def test_the_delay_of_the_spatial_lane_is_the_boards_p99_of_kernels_and_graphs() -> None:
    times = {"count": 9, "p50_us": 1.0, "p90_us": 2.0, "p99_us": 64.0}
    found = look(Rates(), 1.0, spatial=spatial(kernels=times, graphs={**times, "p99_us": 512.0}))
    assert found["queue_p99_us"] == 512.0
    assert look(Rates(), 1.0, spatial=spatial())["queue_p99_us"] is None


def test_the_delay_of_the_temporal_lane_is_what_waits_took() -> None:
    rates = Rates()
    waits, waited = 0, 0.0
    for number in range(101):
        slow = number == 50
        found = look(rates, float(number), activity={"kicks": number, "waits": waits, "wait_ms": waited})
        waits, waited = waits + 10, waited + (80.0 if slow else 1.0)
    # 100 intervals: one of 8 ms and 99 of 0.1 ms a wait
    assert found["queue_p99_us"] == pytest.approx(100.0)
    assert found["launches_per_s"] == pytest.approx(1.0)


def test_a_rate_is_formed_over_a_second_however_often_one_looks() -> None:
    rates = Rates()
    found = [look(rates, number / 10, spatial=spatial(launches=number * (100 if number < 30 else 0) + (
        2900 if number >= 30 else 0))) for number in range(60)]  # fmt: skip
    assert found[25]["launches_per_s"] == pytest.approx(1000.0)
    assert found[59]["launches_per_s"] == 0.0


def test_the_same_look_twice_changes_nothing_and_another_daemon_counts_anew() -> None:
    rates = Rates()
    look(rates, 1.0, spatial=spatial(launches=10))
    before = look(rates, 2.0, spatial=spatial(launches=20))
    assert look(rates, 2.0, spatial=spatial(launches=20)) == before
    assert look(rates, 3.0, spatial=spatial(launches=0))["launches_per_s"] is None
    assert look(rates, 4.0, spatial=spatial(launches=7))["launches_per_s"] == pytest.approx(7.0)


def test_a_reused_pid_starts_anew_and_who_is_not_counted_has_no_rates() -> None:
    rates = Rates()
    look(rates, 1.0, spatial=spatial(launches=10))
    assert look(rates, 2.0, start=999, spatial=spatial(launches=50))["launches_per_s"] is None
    assert look(rates, 3.0) == {}
