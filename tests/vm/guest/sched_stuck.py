# SPDX-License-Identifier: Apache-2.0
"""Turns where the driver refuses for long to switch anybody off or on."""

from __future__ import annotations

from collections.abc import Callable

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_failures import failing
from tests.vm.guest.sched_answers import PAUSE
from tests.vm.guest.sched_refused import LATER_US, REFUSED, more
from tests.vm.guest.sched_tools import Worker, family, gpu_times, progress, worker
from tests.vm.guest.sched_turns import ENDLESS, ENOUGH_US, join, turn, write

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]


def test_whom_the_driver_does_not_put_back_holds_no_turn(family: genl.DetShare, worker: Workers) -> None:
    """It had it for as long as that took, and was asked for less and less often."""
    write(family)
    members = worker(*ENDLESS), worker(*ENDLESS)
    join(family, "low", *members)
    until(lambda: any(each.off() for each in members))
    with failing(PAUSE, REFUSED):
        until(lambda: turn(family).get("turn_pid") in [each.pid for each in members if not each.off()])
        more(PAUSE, 20)
        before = sum(gpu_times(*members))
        more(PAUSE, 12)
        assert sum(gpu_times(*members)) - before < LATER_US
    for each in members:
        until(lambda each=each: progress(each, 0.2) > ENOUGH_US)  # type: ignore[misc]
