# SPDX-License-Identifier: Apache-2.0
"""Memory leaves the GPU and comes back, under the library and on the stand-in driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import good, program, run

from tests.rest import after_first

pytestmark = pytest.mark.e2e

WAYS = ("round", "wakes", "refused", "busy", "full", "held", "below", "ends", "stops")
SHUT = ("launch", "free", "release", "reset", "query", "destroy", "exit", "gives")
KINDS = ("questions", "own", "foreign", "green", "shared")


@pytest.mark.parametrize("case", WAYS)
def test_memory_leaves_and_comes_back(case: str, tmp_path: Path) -> None:
    good(run(program("parked"), case, DETSHARE_PARK="1", FAKECUDA_TAKEN=str(tmp_path / "taken")))


@pytest.mark.parametrize("case", KINDS)
def test_memory_is_what_it_would_be_without(case: str) -> None:
    good(run(program("parkable"), case, DETSHARE_PARK="1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
@pytest.mark.parametrize(("case", "uid"), [("steals", "65534"), ("steals", "0"), ("shares", "65534")])
def test_memory_is_taken_from_the_user_who_shared_it(case: str, uid: str) -> None:
    good(run(program("impostor"), case, uid, DETSHARE_PARK="1"))


@pytest.mark.parametrize("case", SHUT)
def test_whatever_it_calls_first_brings_it_back_from_a_deep_park(case: str) -> None:
    good(run(program("shut"), case, DETSHARE_PARK="1", FAKECUDA_CHECKPOINTS="1"))


def test_a_driver_without_virtual_memory_serves_as_ever() -> None:
    result = run(program("parkable"), "plain", DETSHARE_PARK="1", FAKECUDA_VMM="0")
    good(result)
    assert result.stderr.count("memory that can be parked is refused") == 1


def test_two_gpus_and_their_peers() -> None:
    result = run(program("parkable"), "peers", DETSHARE_PARK="1", FAKECUDA_DEVICES="2", FAKECUDA_EXIT="0")
    assert result.returncode == 0, result.stderr
    wrong = [line for line in result.stderr.splitlines() if line.startswith("fakecuda:")]
    # after access was taken away the last kernel reached nothing, and was to
    assert [line for line in wrong if "kernel mix" not in line and "1 violation" not in line] == []


def test_without_the_option_nothing_leaves() -> None:
    good(run(program("parked"), "off"))


@pytest.mark.parametrize("seed", after_first(range(4)))
def test_contents_are_the_same_after_random_parks(seed: int) -> None:
    out = good(run(program("parks"), str(seed), "150", DETSHARE_PARK="1"))
    assert int(out.split()[1]) > 3


def test_threads_lose_nothing_while_memory_leaves_and_comes_back() -> None:
    out = good(run(program("parkers"), "4", "20", DETSHARE_PARK="1"))
    assert int(out.split()[1]) > 3


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**32 - 1)), min_size=1, max_size=60))
def test_contents_are_the_same_whatever_is_done(steps: list[tuple[int, int]]) -> None:
    text = " ".join(f"{what} {number}" for what, number in steps)
    good(run(program("parks"), "steps", stdin=text, DETSHARE_PARK="1"))


def test_the_steps_find_what_is_lost() -> None:
    """The same steps see memory that came back wrong."""
    result = run(program("parks"), "1", "200", DETSHARE_PARK="1", PARKS_SPOIL="1")
    assert result.returncode == 1
    assert "is not what was written" in result.stderr
