# SPDX-License-Identifier: Apache-2.0
"""Collectives of a rank that wait at a number."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from gatekit import Daemon, Program, Tenant

from detshare.runtime import board_layout as layout
from detshare.runtime.board import monotonic_ns
from tests.patience import Slept, until

Start = Callable[..., Program]
TEN, ONE = "spawn 0 99 1 10", "spawn 0 99 1 1"


def rank(daemon: Daemon, start: Start, flags: int = layout.FLAG_JOB) -> tuple[Program, Tenant]:
    tenant = daemon.tenant(layout.CLASS_NORMAL, flags=flags)
    program = start()
    program.attach()
    return program, tenant


def seen(tenant: Tenant) -> tuple[int, int]:
    return tenant.counters.get("collectives"), tenant.counters.get("collectives_held")


def test_they_wait_at_the_number_and_go_on_as_it_moves(daemon: Daemon, start: Start) -> None:
    program, tenant = rank(daemon, start)
    program.ask("launch 0 99 1 2")
    tenant.policy.put("collectives_from", 5)
    program.ask(TEN)
    for number in (5, 9):
        tenant.policy.put("collectives_from", number)
        until(lambda number=number: seen(tenant) == (number, 1))  # type: ignore[misc]
        time.sleep(0.05)
        assert (program.state()["launched"], seen(tenant)) == (number - 3, (number, 1))
        # who waits keeps its rank from nothing: it has no work, and another stream's goes on
        until(lambda: not tenant.slot.get("active"))
        program.ask("launch 1 1 1 3")
    tenant.policy.put("collectives_from", 0)
    program.ask("join")
    assert (program.state()["launched"], seen(tenant)) == (10, (12, 0))
    assert tenant.counters.get("held_ns") > 100_000_000


@pytest.mark.parametrize("way", ["lease", "context"])
def test_they_wait_no_longer_than_the_daemons_lease_and_the_context(daemon: Daemon, start: Start, way: str) -> None:
    program, tenant = rank(daemon, start)
    tenant.policy.put("collectives_from", 1)
    program.ask(ONE)
    until(lambda: seen(tenant) == (1, 1))
    if way == "lease":
        tenant.policy.lease(monotonic_ns() + 300_000_000)
    else:
        program.ask("detach")
    with Slept() as slept:
        program.ask("join")
    assert slept.seconds < 5
    assert seen(tenant) == (1, 0)


def test_who_is_no_rank_counts_none(daemon: Daemon, start: Start) -> None:
    program, tenant = rank(daemon, start, flags=0)
    tenant.policy.put("collectives_from", 1)
    program.ask("launch 0 99 1 5")
    assert seen(tenant) == (0, 0)
    tenant.policy.write(flags=layout.FLAG_JOB)  # a policy that comes later counts from then on
    until(lambda: program.ask("launch 0 1 1 1") and tenant.counters.get("epoch_ack") == tenant.policy.epoch)
    tenant.policy.put("collectives_from", 2)
    program.ask("launch 0 99 1 1")
    assert seen(tenant) == (1, 0)
