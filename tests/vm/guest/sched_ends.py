# SPDX-License-Identifier: Apache-2.0
"""What is left when programs with buckets end, when many have one, and when a GPU is lost below paused programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_failures import KMSG, fail
from tests.vm.guest.kmod_tools import load, unload
from tests.vm.guest.nvsim_rm import status
from tests.vm.guest.sched_answers import PAUSE
from tests.vm.guest.sched_floods import counted_calls
from tests.vm.guest.sched_tools import Worker, family, of, run_of, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
LOST = status("NV_ERR_GPU_IS_LOST")
PATIENCE_S = 10
"""for which the module waits for one that is to come back"""
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


def moments(log: int, words: str) -> Iterator[float]:
    """When the kernel's log told this since `log` was opened, in seconds."""
    with suppress(BlockingIOError):
        while line := os.read(log, 8192).decode(errors="replace"):
            if words in line:
                yield int(line.split(",")[2]) / 1e6


def test_of_a_lost_gpu_all_programs_are_given_up_at_once(worker: Workers) -> None:
    """Each was waited for in turn, for 10 s, when the module went or the machine was suspended."""
    members = [worker("nvbackground", "--endless") for _ in range(3)]
    with genl.DetShare() as made:
        for each in members:
            made.hold_set(gate=0, pause=1, lease_ms=3_600_000, **of(each))
    log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    fail(PAUSE, LOST)
    try:
        unload()
        given_up = list(moments(log, "stay off the run list"))
    finally:
        os.close(log)
        fail(PAUSE, 0)
        load()
    assert len(given_up) == len(members)
    assert given_up[-1] - given_up[0] < PATIENCE_S / 2
