# SPDX-License-Identifier: Apache-2.0
"""Programs do what they seldom do while their memory is away or lent, under the library and on the stand-in driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import good, program, run

from tests.rest import after_first

pytestmark = pytest.mark.e2e

WAYS = {"whole": {}, "lazy": {"DAEMON_LAZY": "1"}}
CASES = ("captures", "context", "outlives", "room", "host", "breaks-away")
BESIDES = ("own", "refused", "outlived")
BETWEEN = ("between", "begins", "given-up")
BROKEN = {"breaks": "lazy", "lives": "whole"}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_it_goes_on_as_without_the_library(case: str, way: str, tmp_path: Path) -> None:
    good(run(program("unusual"), case, DETSHARE_PARK="1", FAKECUDA_TAKEN=str(tmp_path / "taken"), **WAYS[way]))


@pytest.mark.parametrize("case", BESIDES)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_leaves_while_a_context_is_not_steered(case: str, way: str) -> None:
    good(run(program("besides"), case, DETSHARE_PARK="1", FAKECUDA_DEVICES="2", **WAYS[way]))


@pytest.mark.parametrize("case", BETWEEN)
@pytest.mark.parametrize("way", WAYS)
def test_memory_of_no_context_is_kept_between_two(case: str, way: str) -> None:
    good(run(program("besides"), case, DETSHARE_PARK="1", **WAYS[way]))


@pytest.mark.parametrize("way", WAYS)
def test_what_it_gives_back_at_its_exit_needs_no_room(way: str, tmp_path: Path) -> None:
    good(run(program("besides"), "exits", DETSHARE_PARK="1", FAKECUDA_TAKEN=str(tmp_path / "taken"), **WAYS[way]))


def test_what_it_gives_back_at_its_exit_is_taken_from_what_is_lent(tmp_path: Path) -> None:
    environment = {"FAKECUDA_TAKEN": str(tmp_path / "taken"), **WAYS["lazy"]}
    good(run(program("besides"), "exits-lent", DETSHARE_PARK="1", **environment))


def test_another_gpu_gets_access_while_threads_allocate() -> None:
    good(run(program("unusual"), "peers", DETSHARE_PARK="1", FAKECUDA_DEVICES="2"))


def test_a_thread_that_is_cancelled_leaves_the_others_a_way(tmp_path: Path) -> None:
    environment = {"FAKECUDA_TAKEN": str(tmp_path / "taken"), **WAYS["lazy"]}
    good(run(program("unusual"), "cancels", DETSHARE_PARK="1", **environment))


@pytest.mark.parametrize("way", WAYS)
def test_a_daemon_that_does_not_answer_keeps_nobody(way: str, tmp_path: Path) -> None:
    good(run(program("unusual"), "unanswered", DETSHARE_PARK="1", FAKECUDA_TAKEN=str(tmp_path / "taken"), **WAYS[way]))


def test_what_is_mapped_nowhere_is_waited_for(tmp_path: Path) -> None:
    environment = {"FAKECUDA_TAKEN": str(tmp_path / "taken"), **WAYS["lazy"]}
    good(run(program("unusual"), "nowhere", DETSHARE_PARK="1", **environment))


@pytest.mark.rest
def test_host_memory_goes_back_beside_work_that_waits_for_the_program() -> None:
    good(run(program("unusual"), "gives-back", DETSHARE_PARK="1", FAKECUDA_DEVICES="2"))


def test_who_shares_an_event_is_known_to_share() -> None:
    good(run(program("unusual"), "event", DETSHARE_PARK="1"))


def test_what_a_mapping_held_is_paid_for_no_longer() -> None:
    good(run(program("unusual"), "handles", DETSHARE_PARK="1"))


def test_what_two_threads_end_at_once_goes_once() -> None:
    good(run(program("unusual"), "both", DETSHARE_PARK="1"))


@pytest.mark.parametrize("seed", after_first(range(3)))
def test_nothing_is_lost_in_a_storm(seed: int, tmp_path: Path) -> None:
    out = good(run(program("storm"), str(seed), "3", "60", DETSHARE_PARK="1", FAKECUDA_TAKEN=str(tmp_path / "taken")))
    assert int(out.split()[3]) > 3


@pytest.mark.rest
def test_nothing_is_lost_in_a_storm_over_two_gpus(tmp_path: Path) -> None:
    environment = {"FAKECUDA_TAKEN": str(tmp_path / "taken"), "FAKECUDA_DEVICES": "2"}
    out = good(run(program("storm"), "7", "4", "60", DETSHARE_PARK="1", **environment))
    assert int(out.split()[3]) > 3


@pytest.mark.parametrize("seed", after_first(range(4)))
def test_it_ends_in_the_midst_of_a_storm(seed: int, tmp_path: Path) -> None:
    environment = {"FAKECUDA_TAKEN": str(tmp_path / "taken"), "STORM_ASKED": str(2 + 3 * seed)}
    good(run(program("storm"), str(seed), "3", "60", DETSHARE_PARK="1", **environment))


def test_the_storm_finds_what_is_lost(tmp_path: Path) -> None:
    environment = {"FAKECUDA_TAKEN": str(tmp_path / "taken"), "STORM_SPOIL": "1"}
    result = run(program("storm"), "1", "2", "10", DETSHARE_PARK="1", **environment)
    assert result.returncode == 1
    assert "is not what was written" in result.stderr


def test_what_finds_no_room_takes_none_from_others(tmp_path: Path) -> None:
    good(run(program("unusual"), "nothing", DETSHARE_PARK="1", FAKECUDA_TAKEN=str(tmp_path / "taken")))


@pytest.mark.parametrize("case", BROKEN)
def test_an_error_that_stays_is_told_and_keeps_nobody(case: str, tmp_path: Path) -> None:
    environment = {"FAKECUDA_TAKEN": str(tmp_path / "taken"), "FAKECUDA_EXIT": "0", **WAYS[BROKEN[case]]}
    result = run(program("unusual"), case, DETSHARE_PARK="1", **environment)
    assert result.returncode == 0, result.stderr
    wrong = [line for line in result.stderr.splitlines() if line.startswith("fakecuda:")]
    # the kernel that is to fault
    assert [line for line in wrong if "kernel mix" not in line] == ["fakecuda: 1 violation"]
