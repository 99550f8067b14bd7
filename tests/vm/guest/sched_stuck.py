# SPDX-License-Identifier: Apache-2.0
"""Turns where the driver refuses for long to switch anybody off or on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_failures import failing
from tests.vm.guest.sched_answers import PAUSE, waiting
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
        # nobody has it where the one could not be taken off for the other: each may be off, for all that was answered
        until(lambda: turn(family).get("turn_pid") in (None, *on(*members)))
        more(PAUSE, 20)
        before = sum(gpu_times(*members))
        more(PAUSE, 12)
        assert sum(gpu_times(*members)) - before < LATER_US
    for each in members:
        until(lambda each=each: progress(each, 0.2) > ENOUGH_US)  # type: ignore[misc]


@pytest.mark.parametrize("late", [False, True], ids=["refused", "done"])
@pytest.mark.parametrize("ms", [0, 150])
def test_who_was_refused_in_the_midst_of_its_turns_has_them_when_calls_are_taken(
    family: genl.DetShare, worker: Workers, ms: int, late: bool
) -> None:
    """Of channels that are off, or may be, the driver says that they are idle. Who is believed to be is never taken off
    for another's turn."""
    write(family)
    members = worker(*ENDLESS), worker(*ENDLESS)
    join(family, "low", *members)
    until(lambda: any(each.off() for each in members))
    for _ in range(3):
        with waiting(PAUSE, before_ms=ms), failing(PAUSE, REFUSED, late=late):
            more(PAUSE, 12)
        for each in members:
            until(lambda each=each: progress(each, 0.2) > ENOUGH_US)  # type: ignore[misc]


def test_who_cannot_be_taken_off_leaves_the_holder_its_slices(family: genl.DetShare, worker: Workers) -> None:
    """Both are on then, and slices of a class that has turns are shorter than a switch."""
    write(family)
    members = worker(*ENDLESS), worker(*ENDLESS)
    with failing(PAUSE, REFUSED):
        join(family, "low", *members)
        until(lambda: slices(*members) == {1000})
        assert on(*members) == [each.pid for each in members]
        for each in members:
            until(lambda each=each: progress(each, 0.2) > ENOUGH_US)  # type: ignore[misc]
    until(lambda: slices(*members) == {50})


def slices(*workers: Worker) -> set[int]:
    return {row["slice_us"] for each in workers for row in each.rows()}


def on(*workers: Worker) -> list[int]:
    return [each.pid for each in workers if not each.off()]
