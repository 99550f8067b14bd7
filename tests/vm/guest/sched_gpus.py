# SPDX-License-Identifier: Apache-2.0
"""Two GPUs under one module: turns, windows and buckets of one are nothing to the other; holds and a job's turns are
for both."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import TENANT, load, row, unload
from tests.vm.guest.sched_tools import Worker, divided, family, gpu_times, tsgs, worker
from tests.vm.guest.sched_turns import TURNS, WINDOWS, join, write

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
GPUS = (0, 1)
LOOKS = 50
ENOUGH_US = 50_000  # of GPU time: more than anybody gets who is held, however slow the guest


def got(gpu: int, worker: Worker, seconds: float) -> int:
    """GPU time that it gets there in so long, in microseconds."""
    (before,) = gpu_times(worker, gpu=gpu)
    time.sleep(seconds)
    return gpu_times(worker, gpu=gpu)[0] - before


def on(worker: Workers, gpu: int, count: int) -> list[Worker]:
    return [worker("nvbackground", "--endless", "--gpu", gpu) for _ in range(count)]


def gpus(family: genl.DetShare) -> dict[int, dict[str, Any]]:
    return {each["gpu"]: each for each in map(row, family.gpu_get())}


def test_each_has_turns_of_its_own(family: genl.DetShare, worker: Workers) -> None:
    write(family)
    here, there = on(worker, 0, 2), on(worker, 1, 2)
    join(family, "low", *here, *there)
    until(lambda: all(each["turn_mode"] == TURNS for each in gpus(family).values()))
    for gpu, members in zip(GPUS, (here, there), strict=True):
        divided([pytest.approx(0.5, abs=0.05)] * 2, *members, gpu=gpu, least_s=2, most_s=10)


def teams(family: genl.DetShare, worker: Workers, *names: str) -> list[list[Worker]]:
    """Of each job a rank on each GPU; the class is the job's."""
    made = []
    for name in names:
        ranks = [on(worker, gpu, 1)[0] for gpu in GPUS]
        for each in ranks:
            family.tenant_set(name, each.pid)
        family.sched_set(klass="low", kind=TENANT, tenant=name)
        made.append(ranks)
    return made


def off(gpu: int, worker: Worker) -> int:
    """Channels of it that are off the run list there."""
    return sum(each["off"] for each in tsgs(gpu) if each["client"] == worker.ready["client"])


def who(jobs: list[list[Worker]]) -> list[int | None]:
    """For each GPU which of the jobs is the one that is on there; None: several, or none."""
    found: list[int | None] = []
    for gpu in GPUS:
        may = [i for i, job in enumerate(jobs) if not off(gpu, job[gpu])]
        found.append(may[0] if len(may) == 1 else None)
    return found


def together(jobs: list[list[Worker]], seconds: float) -> float:
    """Of the looks at which one of them was the only one on, on both GPUs, the part at which that was the same.

    Looks in which a turn passed tell nothing.
    """
    looks, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(looks) < LOOKS:
        here, there = who(jobs)
        if here is not None and there is not None and who(jobs) == [here, there]:
            looks.append(here == there)
        time.sleep(0.01)
    return sum(looks) / len(looks)


def test_jobs_have_their_turns_on_both_at_the_same_time(family: genl.DetShare, worker: Workers) -> None:
    write(family, turn_us=300_000)  # far longer than a turn takes to pass, however slow the guest
    jobs = teams(family, worker, "one", "other")
    try:
        until(lambda: who(jobs) in ([0, 0], [1, 1]))
        assert together(jobs, 4) > 0.8
        for gpu in GPUS:
            divided([pytest.approx(0.5, abs=0.06)] * 2, *(job[gpu] for job in jobs), gpu=gpu, least_s=4, most_s=40)
        # one beside them on one GPU has its part, and they still have theirs at the same time
        (third,) = on(worker, 1, 1)
        join(family, "low", third)
        members = [*(job[1] for job in jobs), third]
        divided([pytest.approx(1 / 3, abs=0.06)] * 3, *members, gpu=1, least_s=6, most_s=60)
        assert together(jobs, 4) > 0.8
    finally:
        for name in ("one", "other"):
            family.tenant_del(name)


def test_a_job_that_ends_in_its_turn_leaves_both_to_the_other(family: genl.DetShare, worker: Workers) -> None:
    """And one that has one rank left has its turns on that GPU."""
    write(family)
    jobs = teams(family, worker, "one", "other")
    try:
        until(lambda: who(jobs) == [0, 0])
        jobs[0][0].end()
        for each in (jobs[0][1], jobs[1][1]):
            until(lambda each=each: got(1, each, 0.5) > ENOUGH_US)  # type: ignore[misc]
        until(lambda: who(jobs)[1] == 0)
        jobs[0][1].end()
        for gpu in GPUS:
            divided([pytest.approx(1, abs=0.05)], jobs[1][gpu], gpu=gpu, least_s=1, most_s=20, of_time=True)
    finally:
        for name in ("one", "other"):
            family.tenant_del(name)


def test_the_module_goes_in_mid_turn_of_a_job(worker: Workers) -> None:
    with genl.DetShare() as link:
        write(link)
        jobs = teams(link, worker, "one", "other")
        until(lambda: who(jobs) in ([0, 0], [1, 1]))
    unload()
    try:
        ranks = [(gpu, job[gpu]) for job in jobs for gpu in GPUS]
        assert [off(gpu, each) for gpu, each in ranks] == [0] * len(ranks)
        for gpu, each in ranks:
            until(lambda gpu=gpu, each=each: got(gpu, each, 0.5) > ENOUGH_US)  # type: ignore[misc]
    finally:
        load()


def test_a_class_on_one_leaves_the_other_alone(family: genl.DetShare, worker: Workers) -> None:
    write(family)
    (high,), (low,), (far,) = on(worker, 0, 1), on(worker, 0, 1), on(worker, 1, 1)
    join(family, "high", high)
    join(family, "low", low, far)
    until(lambda: gpus(family)[0]["turn_mode"] == WINDOWS)
    divided([pytest.approx(0.98, abs=0.01), pytest.approx(0.02, abs=0.01)], high, low, least_s=2, most_s=100)
    assert gpus(family)[1]["turn_mode"] == TURNS
    divided([pytest.approx(1, abs=0.05)], far, gpu=1, least_s=1, most_s=20, of_time=True)


def test_a_bucket_is_for_each_gpu(family: genl.DetShare, worker: Workers) -> None:
    """One tenant with a program on each: both have what the bucket gives, and the neighbour there the rest."""
    ours = [*on(worker, 0, 1), *on(worker, 1, 1)]
    for each in ours:
        family.tenant_set("team", each.pid)
    family.bucket_set(300_000, 30_000, kind=TENANT, tenant="team")
    try:
        until(lambda: all(each["emptied"] for each in map(row, family.bucket_get())))
        for gpu, one in zip(GPUS, ours, strict=True):
            divided([pytest.approx(0.3, rel=0.1)], one, gpu=gpu, least_s=2, most_s=20, of_time=True)
    finally:
        family.tenant_del("team")


def test_a_pause_is_for_all_its_gpus(family: genl.DetShare, worker: Workers) -> None:
    ours = [*on(worker, 0, 1), *on(worker, 1, 1)]
    for each in ours:
        family.tenant_set("team", each.pid)
    try:
        family.hold_set(gate=True, pause=True, kind=TENANT, tenant="team")
        for gpu, one in zip(GPUS, ours, strict=True):
            assert got(gpu, one, 0.5) == 0, gpu
        family.hold_del(kind=TENANT, tenant="team")
        for gpu, one in zip(GPUS, ours, strict=True):
            until(lambda gpu=gpu, one=one: got(gpu, one, 0.1) > ENOUGH_US)  # type: ignore[misc]
    finally:
        family.tenant_del("team")
