# SPDX-License-Identifier: Apache-2.0
"""What is left when programs with buckets end, and when many have one."""

from __future__ import annotations

from collections.abc import Callable

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.sched_floods import counted_calls
from tests.vm.guest.sched_tools import Worker, family, of, run_of, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
MANY = 8
LATER_US = 50_000
"""of the neighbour's work: dozens of bursts, each of which is seen while anybody has a bucket"""


def faults_of_bursts(family: genl.DetShare, one: Worker) -> int:
    """Faults that it meets while it does a good deal of its work."""
    before, work = run_of(family, one)["faults"], one.gpu_us()
    until(lambda: one.gpu_us() - work > LATER_US)
    return int(run_of(family, one)["faults"] - before)


def test_a_bucket_ends_with_its_program_though_nobody_asks_for_buckets(family: genl.DetShare, worker: Workers) -> None:
    """Its neighbours were looked at, and met faults, until somebody listed buckets."""
    neighbour, paying = worker("nvlatency", "--period-ms", 5, "--quiet"), worker("nvbackground", "--endless")
    assert faults_of_bursts(family, neighbour) == 0
    family.bucket_set(100_000, 20_000, **of(paying))
    until(lambda: faults_of_bursts(family, neighbour) > 0)
    paying.end()
    until(lambda: faults_of_bursts(family, neighbour) == 0)


def test_all_buckets_are_counted_anew_once_for_whoever_asks(family: genl.DetShare, worker: Workers) -> None:
    """Each made all of them be counted anew, also where one alone was set."""
    members = [worker("nvlatency", "--period-ms", 500, "--quiet") for _ in range(MANY)]
    for each in members:
        with counted_calls("ds_runqs_settle") as settled:
            family.bucket_set(500_000, 500_000, **of(each))
        assert settled[0] <= 2
    with counted_calls("ds_runqs_settle") as settled:
        assert len(family.bucket_get()) == MANY
    assert settled[0] == 1
