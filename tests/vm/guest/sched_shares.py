# SPDX-License-Identifier: Apache-2.0
"""Weights are shares of GPU time, and buckets are rates of it, by the simulated GPU's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import TENANT, row
from tests.vm.guest.sched_tools import Worker, family, long_run, of, progress, runs, shares, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
SECONDS = 10 if long_run() else 4


@pytest.mark.parametrize(("light", "heavy"), [(1, 1), (1, 3), (1, 16), (3, 1)])
def test_weights_are_shares(family: genl.DetShare, worker: Workers, light: int, heavy: int) -> None:
    """However many channel groups one side opens."""
    one, other = worker("nvbackground", "--endless", "--tsgs", 4), worker("nvbackground", "--endless")
    family.sched_set(one.pid, None, weight=light)
    family.sched_set(other.pid, None, weight=heavy)
    used = shares(one, other, seconds=SECONDS)
    assert used[1] / used[0] == pytest.approx(heavy / light, rel=0.05)


def test_the_share_of_an_account_is_divided_among_its_channel_groups(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground")
    family.sched_set(one.pid, None, weight=4)
    assert [each["slice_us"] for each in one.rows()] == [8000]
    two = worker("nvbackground", "--tsgs", 3)
    family.tenant_set("team", one.pid)
    family.tenant_set("team", two.pid)
    family.sched_del(one.pid)
    family.sched_set(None, None, kind=TENANT, tenant="team", weight=4)
    assert [each["slice_us"] for each in (*one.rows(), *two.rows())] == [2000] * 4
    # what one leaves goes to the others
    one.end()
    until(lambda: [each["slice_us"] for each in two.rows()] == [2666] * 3)
    # and who leaves the tenant takes no part
    family.tenant_del("team", two.pid)
    until(lambda: [each["slice_us"] for each in two.rows()] == [2048] * 3)
    family.sched_del(kind=TENANT, tenant="team")
    family.tenant_del("team")


def test_many_channel_groups_of_a_small_weight_do_not_bend_the_proportion(
    family: genl.DetShare, worker: Workers
) -> None:
    """Sixteen slices of a weight of 1 would be too short to be worth a switch: all grow."""
    one, other = worker("nvbackground", "--endless", "--tsgs", 16), worker("nvlatency")
    family.sched_set(one.pid, None, weight=1)
    family.sched_set(other.pid, None, weight=3)
    until(lambda: {each["slice_us"] for each in one.rows()} == {200})
    assert other.rows()[0]["slice_us"] == pytest.approx(3 * 16 * 200, rel=0.01)


def empty_and_filling(family: genl.DetShare) -> dict[str, int] | None:
    """The bucket, if its account stands still and what comes in is seen."""
    (told,) = (row(message) for message in family.bucket_get())
    return told if told["empty"] and told["level_us"] > 0 else None


def settled(family: genl.DetShare, *workers: Worker) -> tuple[float, int, int, int]:
    """Once the account stands still: time, use by the GPU's own clock, by the module's, and what is in the bucket."""
    found = until(lambda: empty_and_filling(family) if all(each.off() for each in workers) else None)
    return time.monotonic(), sum(each.gpu_us() for each in workers), found["used_us"], found["level_us"]


@pytest.mark.parametrize("permille", [100, 300, 700])
def test_a_bucket_is_a_rate(family: genl.DetShare, worker: Workers, permille: int) -> None:
    one = worker("nvbackground", "--endless")
    # what comes in 3 s: no pause of a busy host makes it run over
    burst = permille * 3000
    answer = row(family.bucket_set(permille * 1000, burst, **of(one)))
    assert (answer["rate_us"], answer["burst_us"]) == (permille * 1000, burst)
    begin, before, told, level = settled(family, one)
    time.sleep(SECONDS)
    end, after, tells, left = settled(family, one)
    used, came = after - before, permille * 1000 * (end - begin) - (left - level)
    assert used == pytest.approx(tells - told, rel=0.02), "the estimate"
    assert used == pytest.approx(came, rel=0.02), "the rate"
    family.bucket_del(**of(one))
    assert one.off() == 0
    assert [each["reasons"] for each in runs(family)] == [0]
    assert progress(one) > 50_000


@pytest.mark.parametrize("permille", [100, 300])
def test_a_bucket_beside_a_neighbour_that_has_none(family: genl.DetShare, worker: Workers, permille: int) -> None:
    """It pays for its slices, not for the neighbour's, and the neighbour has all the rest."""
    one, other = worker("nvbackground", "--endless"), worker("nvbackground", "--endless")
    family.bucket_set(permille * 1000, permille * 3000, **of(one))
    begin, before, told, level = settled(family, one)
    theirs = other.gpu_us()
    time.sleep(SECONDS)
    end, after, tells, left = settled(family, one)
    theirs, wall = other.gpu_us() - theirs, 1e6 * (end - begin)
    used, came = after - before, permille * 1000 * (end - begin) - (left - level)
    assert used == pytest.approx(tells - told, rel=0.1), "the estimate"
    assert used == pytest.approx(came, rel=0.1), "the rate"
    # what switches and the two calls of each pause leave
    assert theirs > 0.8 * (wall - used), "what the neighbour has"


def test_a_bucket_that_nobody_empties_holds_nobody(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--us", 200, "--period-ms", 100)
    family.bucket_set(500_000, 500_000, **of(one))
    time.sleep(2)
    told = row(family.bucket_get()[0])
    assert (told["emptied"], told["empty"]) == (0, 0)
    assert one.off() == 0


def test_an_account_pays_for_all_its_processes(family: genl.DetShare, worker: Workers) -> None:
    one, two = worker("nvbackground", "--endless"), worker("nvbackground", "--endless")
    for each in (one, two):
        family.tenant_set("team", each.pid)
    family.bucket_set(300_000, 900_000, kind=TENANT, tenant="team")
    begin, before, _, level = settled(family, one, two)
    each_before = one.gpu_us()
    time.sleep(SECONDS)
    end, after, _, left = settled(family, one, two)
    # two share what the switches between them leave
    assert after - before == pytest.approx(300_000 * (end - begin) - (left - level), rel=0.04)
    assert (one.gpu_us() - each_before) / (after - before) == pytest.approx(0.5, abs=0.05)
    family.tenant_del("team")
    until(lambda: one.off() == two.off() == 0)
