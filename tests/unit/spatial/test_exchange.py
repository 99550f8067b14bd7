# SPDX-License-Identifier: Apache-2.0
"""Two programs, and an arena that cannot hold the one that leaves while the other is still in it: they change places
piece by piece. GPU and arena together hold both."""

from __future__ import annotations

from typing import Any

import pytest
from room_machine import SPATIAL, Machine, Worker

from tests.patience import ended, until

pytestmark = pytest.mark.e2e

ARENA = 112
"""MiB; with the GPU 240"""
FIRST, SECOND = (96, 3, 3, 0, "stop"), (96, 3, 5, 0, "stop")


def parked(machine: Machine) -> tuple[Worker, Worker]:
    """The second has all of its memory on the GPU and stands still, the first is in the arena."""
    first = machine.run(SPATIAL, *FIRST)
    first.go()
    assert first.line() == "has"
    second = machine.run(SPATIAL, *SECOND)
    second.go()
    assert second.line() == "has"
    until(lambda: machine.parking(first)["state"] == "parked")
    assert machine.parking(first)["parked_bytes"] == 96 << 20
    return first, second


def midst(machines: Any) -> tuple[Machine, Worker, Worker]:
    """The first comes home, and the second leaves for it."""
    machine = machines("turns", 3600, policy="strict", arena=ARENA)
    first, second = parked(machine)
    first.go()
    until(lambda: 0 < machine.parking(first)["parked_bytes"] < 96 << 20 or machine.parking(second)["parks"])
    return machine, first, second


def test_who_waits_comes_home_piece_by_piece_while_the_other_leaves(machines: Any) -> None:
    machine = machines("turns", 3600, policy="strict", arena=ARENA)
    first, second = parked(machine)
    first.go()
    assert first.line() == machine.alone(*FIRST[:4])
    second.go()
    assert second.line() == machine.alone(*SECOND[:4])


def test_a_daemon_that_is_killed_in_mid_exchange_loses_nothing_and_the_next_one_goes_on(machines: Any) -> None:
    machine, first, second = midst(machines)
    machine.daemon.kill()
    ended(machine.daemon)
    machine.start()
    assert first.line() == machine.alone(*FIRST[:4])
    second.go()
    assert second.line() == machine.alone(*SECOND[:4])


def test_one_that_is_killed_in_mid_exchange_leaves_the_other_whole(machines: Any) -> None:
    machine, first, second = midst(machines)
    first.process.kill()
    first.process.communicate()
    second.go()
    assert second.line() == machine.alone(*SECOND[:4])


def test_who_leaves_is_killed_in_mid_exchange_and_the_other_comes_home(machines: Any) -> None:
    machine, first, second = midst(machines)
    second.process.kill()
    second.process.communicate()
    assert first.line() == machine.alone(*FIRST[:4])


def test_three_programs_have_their_turns(machines: Any) -> None:
    """Of 48 MiB each; the GPU has room for two, and the arena of 88 for one."""
    machine = machines("turns", 3600, policy="strict", arena=88)
    words = [(48, 3, rounds, 0, "stop") for rounds in (3, 5, 7)]
    workers = [machine.run(SPATIAL, *each) for each in words]
    for worker in workers:
        worker.go()
        assert worker.line() == "has"
    for worker, each in zip(workers, words, strict=True):
        worker.go()
        assert worker.line() == machine.alone(*each[:4])


@pytest.mark.rest
def test_two_that_change_places_again_and_again_lose_nothing(machines: Any) -> None:
    """Each round of 40 ms: a turn is over before the work is."""
    machine = machines("turns", 3600, policy="strict", arena=ARENA)
    words = (96, 3, 60, 40, "stop"), (96, 3, 70, 40, "stop")
    workers = [machine.run(SPATIAL, *each) for each in words]
    for worker in workers:
        worker.go()
        assert worker.line() == "has"
    for worker in workers:
        worker.go()
    for worker, each in zip(workers, words, strict=True):
        assert worker.line() == machine.alone(*each[:4])
