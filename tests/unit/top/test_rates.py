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


def histogram(**counts: int) -> list[int]:
    """counts: b10=3 means three in bucket 10, 1.0 to 2.0 us."""
    made = [0] * 32
    for name, count in counts.items():
        made[int(name[1:])] = count
    return made


def test_the_delay_of_the_spatial_lane_is_that_of_the_last_ten_seconds() -> None:
    rates = Rates()
    assert look(rates, 0.0, spatial=spatial(delays=histogram(b20=5000)))["queue_p99_us"] is None
    found = look(rates, 2.0, spatial=spatial(delays=histogram(b20=5000, b10=98, b12=2)))
    assert found["queue_p99_us"] == pytest.approx(8.192), "of the hundred since then, not of those before"
    for number in range(4, 20, 2):
        found = look(rates, float(number), spatial=spatial(delays=histogram(b20=5000, b10=98 + number, b12=2)))
    assert found["queue_p99_us"] == pytest.approx(2.048), "what was slow is longer ago"
    assert look(rates, 40.0, spatial=spatial(delays=histogram(b10=1)))["queue_p99_us"] is None, "another vCtx"
    assert look(Rates(), 1.0, spatial=spatial())["queue_p99_us"] is None


def test_what_waits_at_a_shut_door_is_no_queue_delay() -> None:
    rates = Rates()
    waits, waited = 0, 0.0
    for number in range(101):
        slow = number == 50
        found = look(rates, float(number), activity={"kicks": number, "waits": waits, "wait_ms": waited})
        waits, waited = waits + 10, waited + (80.0 if slow else 1.0)
    # 100 intervals: one of 8 ms and 99 of 0.1 ms a wait
    assert found["door_p99_us"] == pytest.approx(100.0)
    assert found["queue_p99_us"] is None
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
