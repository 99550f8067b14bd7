# SPDX-License-Identifier: Apache-2.0
"""Turns under a driver that refuses, or that takes its time: nobody is locked out, and each floor is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_failures import fail, failed, failing
from tests.vm.guest.kmod_tools import load, unload
from tests.vm.guest.nvsim_rm import number, status
from tests.vm.guest.sched_answers import PAUSE, waiting
from tests.vm.guest.sched_tools import Worker, divided, family, gpu_times, worker
from tests.vm.guest.sched_turns import ENDLESS, WINDOWS, join, turn, write

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
SLICE = number("NVA06C_CTRL_CMD_SET_TIMESLICE")
REFUSED = status("NV_ERR_BUSY_RETRY")
LATER_US = 8_000_000
"""of the GPU's clock: far more than some tries at their rarest take, far less than any that double their rests"""


def more(command: int, count: int) -> None:
    """Until so many more calls of it were refused."""
    before = failed(command)
    until(lambda: failed(command) >= before + count)


def test_a_slice_that_is_refused_is_soon_set_again(family: genl.DetShare, worker: Workers) -> None:
    """A program had the slices of its class, shorter than a switch, for half a minute after its release."""
    write(family)
    released, other = worker("nvlatency", "--period-ms", 50), worker(*ENDLESS)
    join(family, "idle", released)
    with failing(SLICE, REFUSED):
        family.sched_del(released.pid)
        more(SLICE, 6)
        (before,) = gpu_times(other)
        more(SLICE, 4)
        assert gpu_times(other)[0] - before < LATER_US
    until(lambda: released.rows()[0]["slice_us"] == 2048)


def test_the_module_goes_when_slices_are_back(worker: Workers) -> None:
    """However often that is refused at first."""
    with genl.DetShare() as link:
        write(link)
        one = worker(*ENDLESS)
        join(link, "idle", one)
    assert one.rows()[0]["slice_us"] != 2048
    fail(SLICE, REFUSED, count=12)
    unload()
    try:
        assert [(each["slice_us"], each["level"]) for each in one.rows()] == [(2048, 1)]
    finally:
        fail(SLICE, 0)
        load()


@pytest.mark.parametrize("ms", [0, 3])
def test_floors_are_kept_however_long_a_pause_takes(family: genl.DetShare, worker: Workers, ms: int) -> None:
    """What three ran while calls were under way was not counted: they had nearly twice their floor."""
    write(family)
    members = [worker(*ENDLESS) for _ in range(3)]
    join(family, "low", *members)
    high = worker(*ENDLESS)
    join(family, "high", high)
    until(lambda: turn(family)["turn_mode"] == WINDOWS)
    with waiting(PAUSE, before_ms=ms, after_ms=ms):
        some, all_but_some = pytest.approx(0.006, abs=0.006), pytest.approx(0.982, abs=0.008)
        divided([some, some, some, all_but_some], *members, high, least_s=10, most_s=30)
