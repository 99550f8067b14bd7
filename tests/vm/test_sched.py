# SPDX-License-Identifier: Apache-2.0
"""The scheduler of detshare.ko in guests, on the simulated driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.vm.conftest import Completed
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture

GUESTS = {
    "orders": ("sched_pause.py", "sched_accounts.py", "sched_tame.py", "sched_answers.py"),
    "turns": ("sched_turns.py",),
    "shares": ("sched_shares.py", "sched_ceiling.py", "sched_refused.py", "sched_stuck.py"),
    "states": ("sched_states.py", "sched_heirs.py"),
    "long": ("sched_long.py",),
    "hidden": (
        "sched_hidden.py",
        "sched_subdevices.py",
        "sched_stalled.py",
        "sched_bounds.py",
        "sched_floods.py",
        "sched_ends.py",
    ),
    "copies": ("sched_copies.py", "sched_dead.py", "sched_guests.py"),
    "gpus": ("sched_gpus.py", "sched_managed.py", "kmod_far.py", "kmod_lookup.py"),
    "throttled": ("sched_throttled.py",),
}
"""files that share a guest"""
TWO_GPUS = ("gpus",)
NEWEST = ("orders", "turns", "hidden")
"""what runs on the newest kernel too"""


def guests() -> list[ParameterSet]:
    found = []
    for name in GUESTS:
        for kernel in ("6.12", "6.1", "7.3") if name in NEWEST else ("6.12", "6.1"):
            # long is a rate by the clock of a program that polls: for a machine without other work
            marks = [pytest.mark.thorough] if kernel != "6.12" or name == "long" else []
            found.append(pytest.param(name, kernel, id=f"{name}-{kernel}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "kernel"), guests())
def test_in_the_guest(guest_pytest: Callable[..., Completed], clients: Path, name: str, kernel: str) -> None:
    done = guest_pytest(
        *(f"tests/vm/guest/{file}" for file in GUESTS[name]),
        kernel=kernel,
        driver="sim",
        gpus=2 if name in TWO_GPUS else 1,
        load=True,
        timeout=900,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    assert " passed" in done.stdout


@pytest.mark.alone
def test_how_much_is_got_by_turns(guest_pytest: Callable[..., Completed], clients: Path) -> None:
    """The tests of `turns` again, with what a guest shows that has the machine for itself."""
    done = guest_pytest(
        "tests/vm/guest/sched_turns.py",
        kernel="6.12",
        driver="sim",
        load=True,
        timeout=900,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients), "DETSHARE_ALONE": "1"},
    )
    assert " passed" in done.stdout


@pytest.mark.alone
@pytest.mark.thorough
def test_dice_over_turns(guest_pytest: Callable[..., Completed], clients: Path) -> None:
    """Three lives; more by hand, with other seeds in DETSHARE_DICE."""
    done = guest_pytest(
        "tests/vm/guest/sched_dice.py",
        kernel="6.12",
        driver="sim",
        gpus=2,
        load=True,
        timeout=900,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients), "DETSHARE_ALONE": "1"},
    )
    assert " passed" in done.stdout
