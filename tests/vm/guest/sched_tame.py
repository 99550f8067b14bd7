# SPDX-License-Identifier: Apache-2.0
"""What a program chose for itself before anything stood for it does not stay in force, even if the driver fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import PID, row
from tests.vm.guest.nvsim_rm import Block, Rm, number, status
from tests.vm.guest.nvsim_steering import WFI, close, preemption, running
from tests.vm.guest.nvsim_tools import rm
from tests.vm.guest.nvsim_work import Channel
from tests.vm.guest.sched_tools import family

__all__ = ["family", "rm"]  # fixtures

FAILING = Path("/sys/kernel/debug/nvsim/failing")
MODE = "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE"
ME = {"kind": PID, "pid": os.getpid()}


@pytest.fixture
def untamed(rm: Rm) -> Iterator[Channel]:
    """A channel of this process, whose group is real time, has no slice and kernels that cannot be taken off."""
    (channel,), bell = running(rm)
    channel.compute()
    realtime = Block.of("NVA06C_CTRL_MAKE_REALTIME_PARAMS", bRealtime=1)
    endless = Block.of("NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_PARAMS", hChannel=channel.handle, property=2)
    assert rm.control(channel.group, "NVA06C_CTRL_CMD_MAKE_REALTIME", realtime) == 0
    assert rm.control(rm.device, "NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES", endless) == 0
    assert preemption(channel, WFI) == 0
    assert chosen(channel) == ("1", "1", "1")
    yield channel
    close([channel], bell)
    FAILING.write_text(f"{number(MODE):#x} 0 0")


def chosen(channel: Channel) -> tuple[str, ...]:
    found = channel.row()
    return tuple(found[name] for name in ("wfi", "endless", "realtime"))


def by_order(family: genl.DetShare) -> None:
    assert row(family.sched_set(os.getpid(), None, 700, level=genl.DETSHARE_LEVEL_HIGH))["tsgs_failed"] == 0


def by_hold(family: genl.DetShare) -> None:
    family.hold_set(gate=True, pause=False, **ME)


def by_bucket(family: genl.DetShare) -> None:
    family.bucket_set(500_000, 50_000, **ME)


@pytest.mark.parametrize("begin", [by_order, by_hold, by_bucket])
def test_what_was_chosen_before_is_set_back(
    begin: Callable[[genl.DetShare], None], family: genl.DetShare, untamed: Channel
) -> None:
    begin(family)
    until(lambda: chosen(untamed) == ("0", "0", "0"))
    if begin is by_order:
        assert (untamed.row()["slice_us"], untamed.row()["level"]) == ("700", "2")


def test_who_has_freed_its_subdevice_keeps_nothing(family: genl.DetShare, untamed: Channel, rm: Rm) -> None:
    objects = Path("/sys/kernel/debug/nvsim/gpu0/objects")
    assert rm.free(rm.subdevice) == 0
    before = objects.read_text()
    by_order(family)
    assert chosen(untamed) == ("0", "0", "0")
    assert (untamed.row()["slice_us"], untamed.row()["level"]) == ("700", "2")
    assert objects.read_text() == before


def test_a_driver_that_fails_is_asked_again(family: genl.DetShare, untamed: Channel) -> None:
    failure = status("NV_ERR_BUSY_RETRY")
    FAILING.write_text(f"{number(MODE):#x} {failure:#x} 2")
    answer = row(family.sched_set(os.getpid(), None, 700))
    assert (answer["tsgs_failed"], answer["status"]) == (1, failure)
    until(lambda: chosen(untamed) == ("0", "0", "0"))
    assert untamed.row()["slice_us"] == "700"
