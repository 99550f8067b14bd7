# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.tools.bench import stats


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        ([7.0], 99, 7.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 101)), 100, 100),
        (list(range(1, 102)), 99, 100),
        ([1.0, 2.0], 0, 1.0),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[float], percent: float, wanted: float) -> None:
    assert stats.percentile(values, percent) == wanted


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 100))
def test_percentile_was_measured_and_splits_the_values(values: list[float], percent: float) -> None:
    found = stats.percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-6


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        stats.percentile([], 50)
    with pytest.raises(ValueError, match="no round"):
        stats.spread([])
    with pytest.raises(ValueError, match="no window"):
        stats.rate([])


def test_spread_takes_the_middle_of_an_even_number_of_rounds() -> None:
    assert stats.spread([4.0, 1.0, 2.0, 3.0]) == stats.Spread(2.5, 1.0, 4.0)
    assert stats.spread([9.0, 1.0, 2.0]) == stats.Spread(2.0, 1.0, 9.0)


def test_rate_counts_only_the_time_of_the_windows() -> None:
    windows = [{"t0": 0.0, "t1": 0.5, "items": 10}, {"t0": 2.0, "t1": 3.5, "items": 30}]
    assert stats.rate(windows) == 20.0
    assert stats.rate([{"t0": 0.0, "t1": 1.0, "count": 3}], "count") == 3.0
    assert stats.rate([{"t0": 0.0, "t1": 1.0, "count": 0}]) == 0.0  # a window of nothing finished


def test_latencies_of_all_windows() -> None:
    values = stats.latencies([{"latency_us": [3.0, 1.0]}, {"count": 1}, {"latency_us": [2.0]}])
    assert stats.latency(values) == stats.Latency(2.0, 3.0, 3.0, 3)


def test_shares_and_their_distance_from_the_weights() -> None:
    parts = stats.shares([250.0, 675.0], [1000.0, 900.0])
    assert parts == [0.25, 0.75]
    assert stats.deviation(parts, [1, 3]) == pytest.approx(0.0)
    # 2:1 where 1:1 was wanted: one has a third more than its half, the other a third less
    assert stats.deviation([0.6, 0.3], [1, 1]) == pytest.approx(1 / 3)
    assert stats.deviation([0.5, 0.0], [1, 1]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no tenant"):
        stats.deviation([0.0, 0.0], [1, 1])


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0.1, 0.9)), min_size=1, max_size=8))
def test_parts_in_proportion_to_weights_deviate_by_nothing(tenants: list[tuple[int, float]]) -> None:
    scale = tenants[0][1]
    weights = [weight for weight, _ in tenants]
    assert stats.deviation([weight * scale for weight in weights], weights) == pytest.approx(0.0, abs=1e-9)
