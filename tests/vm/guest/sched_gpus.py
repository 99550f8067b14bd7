# SPDX-License-Identifier: Apache-2.0
"""Two GPUs under one module: turns, windows and buckets of one are nothing to the other; holds are for both."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import TENANT, row
from tests.vm.guest.sched_tools import Worker, family, tsgs, worker
from tests.vm.guest.sched_turns import TURNS, join, write

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
GPUS = (0, 1)


def gpu_us(gpu: int, *workers: Worker) -> list[int]:
    """GPU time that each has had there, in microseconds."""
    rows = tsgs(gpu)
    return [sum(each["gpu_time_us"] for each in rows if each["client"] == one.ready["client"]) for one in workers]


def got(gpu: int, workers: list[Worker], seconds: float) -> list[int]:
    """What each gets there in so long."""
    before = gpu_us(gpu, *workers)
    time.sleep(seconds)
    return [now - was for now, was in zip(gpu_us(gpu, *workers), before, strict=True)]


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
        used = got(gpu, members, 3.0)
        assert used[0] / sum(used) == pytest.approx(0.5, abs=0.06), gpu
        assert sum(used) > 2_000_000, gpu


def test_a_class_on_one_leaves_the_other_alone(family: genl.DetShare, worker: Workers) -> None:
    write(family)
    (high,), (low,), (far,) = on(worker, 0, 1), on(worker, 0, 1), on(worker, 1, 1)
    join(family, "high", high)
    join(family, "low", low, far)
    time.sleep(0.5)
    assert got(0, [low], 1.0)[0] < 200_000
    assert got(1, [far], 1.0)[0] > 800_000


def test_a_bucket_is_for_each_gpu(family: genl.DetShare, worker: Workers) -> None:
    """One tenant with a program on each: both have what the bucket gives, and the neighbour there the rest."""
    ours = [*on(worker, 0, 1), *on(worker, 1, 1)]
    for each in ours:
        family.tenant_set("team", each.pid)
    family.bucket_set(300_000, 30_000, kind=TENANT, tenant="team")
    try:
        until(lambda: all(each["emptied"] for each in map(row, family.bucket_get())))
        for gpu, one in zip(GPUS, ours, strict=True):
            assert got(gpu, [one], 2.0)[0] == pytest.approx(600_000, rel=0.25), gpu
    finally:
        family.tenant_del("team")


def test_a_pause_is_for_all_its_gpus(family: genl.DetShare, worker: Workers) -> None:
    ours = [*on(worker, 0, 1), *on(worker, 1, 1)]
    for each in ours:
        family.tenant_set("team", each.pid)
    try:
        family.hold_set(gate=True, pause=True, kind=TENANT, tenant="team")
        for gpu, one in zip(GPUS, ours, strict=True):
            assert got(gpu, [one], 0.5) == [0], gpu
        family.hold_del(kind=TENANT, tenant="team")
        for gpu, one in zip(GPUS, ours, strict=True):
            assert got(gpu, [one], 0.5)[0] > 200_000, gpu
    finally:
        family.tenant_del("team")
