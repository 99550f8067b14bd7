# SPDX-License-Identifier: Apache-2.0
"""Which tests in guests `make test` runs, and in which order: two workers are to end at about the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

__all__ = ["ONCE", "for_two_workers", "once"]

ONCE: Final = (
    # limits, accounts, adoption, cgroups
    "test_kmod.py::test_on_the_simulated_driver[6.12]",
    # doorbell gates
    "test_gates.py::test_gates[6.12]",
    # turns, windows, floors
    "test_sched.py::test_in_the_guest[turns-6.12]",
    # the daemon and its commands with the module
    "test_ctl_kmod.py::test_in_the_guest[ctl_kmod.py]",
    # a genuine driver below the module
    "test_interception.py::test_answers_are_the_same_to_the_byte[535]",
)
"""Each part of the whole once, on one kernel. `make test-all` has the rest."""

SECONDS: Final = {
    "test_attack.py::test_sixty": 95,
    "test_attack.py::test_two": 45,
    "test_bed.py::test_a_command_that_takes": 25,
    "test_bed.py::test_a_guest": 40,
    "test_conformance.py::test_both_traces_are_answered_as_recorded_and_leave_nothing": 25,
    "test_ctl_kmod.py::test_in": 80,
    "test_ctl_kmod.py::test_the_scheduler": 130,
    "test_ctl_root.py": 100,
    "test_debug_kernel.py": 70,
    "test_ebpf.py": 60,
    "test_forward.py::test_the": 30,
    "test_fuzz.py": 40,
    "test_gates.py": 90,
    "test_hostile.py": 90,
    "test_interception.py::test_clients": 80,
    "test_kmod.py::test_on": 120,
    "test_nvsim.py::test_the_simulated": 45,
    "test_sched.py": 130,
    "test_sched_bench.py": 50,
    "test_unload.py": 45,
    # they look at a guest of an earlier test
    "test_engine.py::test_a_replayed": 0,
    "test_interception.py::test_answers_are_the_same_to_the_byte[535]": 35,
    "test_interception.py::test_answers": 0,
    "test_interception.py::test_module": 0,
    "test_nvsim.py::test_a_version": 0,
    "test_nvsim.py::test_it": 0,
}
"""Beside another test, roughly, by how a test's name begins. What is wrong here costs time only."""
OTHERS: Final = 12.0
"""a guest started, and little done in it"""


def for_two_workers(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The long ones first. Two workers get one half of the list each at first: the halves take about as long."""
    falling = sorted(items, key=_seconds, reverse=True)
    return [*falling[::2], *falling[1::2]]


def once(item: pytest.Item) -> bool:
    """Whether `make test` runs it."""
    return _name(item) in ONCE


def _name(item: pytest.Item) -> str:
    return item.nodeid.rpartition("/")[2]


def _seconds(item: pytest.Item) -> float:
    return next((seconds for start, seconds in SECONDS.items() if _name(item).startswith(start)), OTHERS)
