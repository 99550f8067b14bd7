# SPDX-License-Identifier: Apache-2.0
"""A few lives of programs under dice; hundreds by hand (memory_dice.py, ipc_dice.py, green_dice.py, resets_dice.py)."""

from __future__ import annotations

import green_dice
import ipc_dice
import memory_dice
import pytest
import resets_dice

from tests.rest import after_first

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("seed", after_first([1, 5, 14, 104, 1006]))
def test_a_life_is_the_same_under_the_library(seed: int) -> None:
    assert memory_dice.live(seed) == []


@pytest.mark.parametrize("seed", after_first([5, 11, 22]))
def test_programs_that_share_memory_are_the_same_under_the_library(seed: int) -> None:
    assert ipc_dice.live(seed) == []


@pytest.mark.parametrize("seed", after_first([3, 8]))
def test_a_program_with_green_contexts_is_the_same_under_the_library(seed: int) -> None:
    assert green_dice.live(seed) == []


@pytest.mark.parametrize("seed", after_first([1, 5]))
def test_what_threads_have_outlives_their_contexts(seed: int) -> None:
    assert resets_dice.live(seed) == []
