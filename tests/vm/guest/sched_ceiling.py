# SPDX-License-Identifier: Apache-2.0
"""TPC ceilings: a cap on the SMs of one context, lifted with the order."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import CLIENTS, TRUTH, load, row, unload
from tests.vm.guest.nvsim_rm import Block, Rm
from tests.vm.guest.nvsim_tools import tsg, vas
from tests.vm.guest.nvsim_work import Channel
from tests.vm.guest.sched_tools import Worker, family, tsgs, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]


def rate(worker: Worker, seconds: float = 1.0) -> float:
    """Kernels in a second of GPU time: fewer SMs, longer kernels."""

    def both() -> tuple[int, int]:
        (found,) = worker.rows()
        return found["finished"], found["gpu_time_us"]

    before = both()
    time.sleep(seconds)
    after = both()
    return (after[0] - before[0]) / (after[1] - before[1]) * 1e6


def test_a_ceiling_caps_and_is_lifted(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground", "--us", 1000)
    assert rate(one) == pytest.approx(1000, rel=0.1)
    answer = row(family.sched_set(one.pid, None, tpc_percent=50))
    assert (answer["tsgs_set"], answer.get("tpc_status", 0)) == (1, 0)
    assert rate(one) == pytest.approx(500, rel=0.1)
    family.sched_set(one.pid, None, tpc_percent=25)
    assert rate(one) == pytest.approx(250, rel=0.15)
    assert row(family.gpu_get()[0])["ceiling"] == genl.DETSHARE_ABILITY_PRESENT
    family.sched_del(one.pid)
    assert rate(one) == pytest.approx(1000, rel=0.1)


def capped(seconds: float) -> bool:
    """Does the only channel group have half of the SMs?"""
    (before,) = tsgs()
    time.sleep(seconds)
    (after,) = tsgs()
    done, used = (after[key] - before[key] for key in ("finished", "gpu_time_us"))
    return done > 20 and done / used * 1e6 == pytest.approx(500, rel=0.15)


def test_an_order_before_the_program_caps_it_without_being_asked_again(family: genl.DetShare) -> None:
    words = ["sh", "-c", 'read line; exec "$0" --us 1000', str(CLIENTS / "nvbackground")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        try:
            family.sched_set(shell.pid, None, tpc_percent=50)
            assert shell.stdin is not None
            assert shell.stdout is not None
            shell.stdin.write("\n")
            shell.stdin.flush()
            assert "ready" in shell.stdout.readline()
            # the firmware takes the table once the channel group was scheduled: it is tried again until then
            until(lambda: capped(0.5))
        finally:
            shell.kill()
    until(lambda: tsgs() == [])


def test_who_has_freed_its_subdevice_is_capped_where_nobody_has_counted() -> None:
    """The module has not asked yet how many TPCs there are, and makes a subdevice for that."""
    unload()
    load()
    rm = Rm.start()
    try:
        space, share = vas(rm), rm.handle()
        group = tsg(rm, space)
        params = Block.of("NV_CTXSHARE_ALLOCATION_PARAMETERS", hVASpace=space)
        assert rm.alloc("FERMI_CONTEXT_SHARE_A", group, share, params)[0] == 0
        channel = Channel(rm, group, share=share, space=space)
        channel.compute()
        assert channel.schedule() == 0
        assert rm.free(rm.subdevice) == 0
        objects = (TRUTH / "objects").read_text()
        with genl.DetShare() as link:
            answer = row(link.sched_set(os.getpid(), None, tpc_percent=50))
            assert (answer["tsgs_set"], answer.get("tpc_status", 0)) == (1, 0)
            assert row(link.gpu_get()[0])["ceiling"] == genl.DETSHARE_ABILITY_PRESENT
            link.sched_del(os.getpid())
        assert (TRUTH / "objects").read_text() == objects
        channel.close()
    finally:
        rm.close()
