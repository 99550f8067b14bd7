# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.gputime.measure import of_groups


def time(share: float, *history: float, stalled_s: float = 0.0) -> GpuTime:
    return GpuTime("GPU-0", 10.0, share, share / 2, 100 * share, 500.0, 100.0, history, stalled_s)


def test_who_is_not_in_a_group_keeps_its_time() -> None:
    times = {1: time(0.5, 0.5), 2: time(0.25, 0.25)}
    assert of_groups(times, {1: 1, 2: 2}) == times
    assert of_groups(times, {}) == times


def test_a_clients_time_is_its_servers() -> None:
    assert of_groups({2: time(0.5, 0.5)}, {1: 1, 2: 1}) == {1: time(0.5, 0.5)}


def test_two_of_a_group_have_their_times_together() -> None:
    found = of_groups({1: time(0.25, 0.5, stalled_s=3.0), 2: time(0.5, 0.25, 0.5), 3: time(0.125)}, {2: 1})
    assert found[3] == time(0.125)
    assert (found[1].share, found[1].useful, found[1].switches_s) == (0.75, 0.375, 75.0)
    assert found[1].history == (0.25, 1.0)
    assert found[1].stalled_s == 0.0
