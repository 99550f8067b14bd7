# SPDX-License-Identifier: Apache-2.0
"""Histograms of calls into the simulated driver: the system call and the driver's own function, counted exactly."""

from __future__ import annotations

import subprocess
from functools import partial

from detshare.ctl.netlink import genl
from detshare.ebpf.latency import Histogram, Kind, LatencyTracer
from tests.vm.guest.ebpf_tools import tracing
from tests.vm.guest.kmod_tools import CLIENTS, RM_ALLOC, RM_FREE

PAIRS = 503
OWN = 3
"""nvloop's own client, device and subdevice"""


def test_every_call_is_in_a_histogram_of_the_call_and_of_the_driver() -> None:
    tracer = LatencyTracer(partial(getattr, genl))
    try:
        words = [CLIENTS / "nvloop", "--kind", "client", "--batches", "2", "--calls", str(PAIRS)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        process.wait()
        found = [each for each in tracer.histograms() if each.pid == process.pid]
        calls = {each.detail: each for each in found if each.kind is Kind.IOCTL}
        # two batches, and one more by which nvloop warms up
        assert calls[RM_FREE].count == 3 * PAIRS
        assert calls[RM_ALLOC].count == 3 * PAIRS + OWN
        driver: list[Histogram] = [each for each in found if each.kind is Kind.DRIVER]
        assert [each.count for each in driver] == [sum(each.count for each in calls.values())]
        assert driver[0].sum <= sum(each.sum for each in calls.values())
        for each in found:
            assert sum(each.buckets.values()) == each.count
            assert each.most <= each.sum
            assert 0 < each.percentile(0.5) <= each.percentile(1.0)
            assert 2 ** max(each.buckets) <= each.most < 2 ** (max(each.buckets) + 1)
        assert not tracer.trouble()
        assert tracer.notes() == []
    finally:
        tracer.close()


def test_the_command_prints_histograms() -> None:
    with tracing("latency") as trace:
        subprocess.run([CLIENTS / "nvloop", "--kind", "client", "--batches", "1", "--calls", "100"], check=True)
    assert trace.code == 0
    assert f"ioctl {RM_FREE:#x}: 200, mean " in trace.out
    assert "#" in trace.out
