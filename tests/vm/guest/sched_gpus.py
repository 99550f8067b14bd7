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
from tests.vm.guest.sched_tools import Worker, divided, family, gpu_times, worker
from tests.vm.guest.sched_turns import TURNS, WINDOWS, join, write

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
GPUS = (0, 1)
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
