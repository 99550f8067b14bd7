# SPDX-License-Identifier: Apache-2.0
"""Weights are shares of GPU time, and buckets are rates of it, by the simulated GPU's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from detshare.ctl.netlink import genl
from tests.vm.guest.kmod_tools import TENANT, eventually, row
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
    eventually(lambda: [each["slice_us"] for each in two.rows()] == [2666] * 3)
    # and who leaves the tenant takes no part
    family.tenant_del("team", two.pid)
    eventually(lambda: [each["slice_us"] for each in two.rows()] == [2048] * 3)
    family.sched_del(kind=TENANT, tenant="team")
    family.tenant_del("team")


def test_many_channel_groups_of_a_small_weight_do_not_bend_the_proportion(
    family: genl.DetShare, worker: Workers
) -> None:
    """Ten slices of a weight of 1 would be too short to be worth a switch: all grow."""
    one, other = worker("nvbackground", "--endless", "--tsgs", 20), worker("nvlatency")
    family.sched_set(one.pid, None, weight=1)
    family.sched_set(other.pid, None, weight=3)
    eventually(lambda: {each["slice_us"] for each in one.rows()} == {200})
    assert [each["slice_us"] for each in other.rows()] == [3 * 20 * 200]


@pytest.mark.parametrize("permille", [100, 300, 700])
def test_a_bucket_is_a_rate(family: genl.DetShare, worker: Workers, permille: int) -> None:
    one = worker("nvbackground", "--endless")
    # it launches once: who counts as active only for a moment after that would pay for a moment only
    family.class_set("metered", 1, linger_us=10_000_000)
    family.sched_set(one.pid, "metered")
    answer = row(family.bucket_set(permille * 1000, 100_000, **of(one)))
    assert (answer["rate_us"], answer["burst_us"]) == (permille * 1000, 100_000)
    # it begins full
    eventually(lambda: row(family.bucket_get()[0])["empty"] == 1)
    time.sleep(0.5)
    seconds = 10 if long_run() else 6
    begin, before = time.monotonic(), one.gpu_us()
    time.sleep(seconds)
    used, span = one.gpu_us() - before, time.monotonic() - begin
    # a whole cycle more or less is in it or not
    cycle = 50_000 / span
    assert abs(used / span - permille * 1000) < 0.02 * permille * 1000 + cycle
    told = row(family.bucket_get()[0])
    assert told["emptied"] >= 2
    family.bucket_del(**of(one))
    assert one.off() == 0
    assert [each["reasons"] for each in runs(family)] == [0]
    assert progress(one) > 100_000


def test_a_bucket_that_nobody_empties_holds_nobody(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--us", 200, "--period-ms", 100)
    family.bucket_set(500_000, 500_000, **of(one))
    time.sleep(2)
    told = row(family.bucket_get()[0])
    assert (told["emptied"], told["empty"]) == (0, 0)
    assert one.off() == 0


def test_an_account_pays_for_all_its_processes(family: genl.DetShare, worker: Workers) -> None:
    one, two = worker("nvbackground", "--endless"), worker("nvbackground", "--endless")
    family.class_set("metered", 1, linger_us=10_000_000)
    for each in (one, two):
        family.tenant_set("team", each.pid)
    family.sched_set(None, "metered", kind=TENANT, tenant="team")
    family.bucket_set(200_000, 100_000, kind=TENANT, tenant="team")
    eventually(lambda: row(family.bucket_get()[0])["empty"] == 1)
    time.sleep(0.5)
    used = shares(one, two, seconds=5)
    assert sum(used) == pytest.approx(0.2 * 5e6, rel=0.05)
    assert min(used) > 0.05 * 5e6
    family.tenant_del("team")
    eventually(lambda: one.off() == two.off() == 0)
