# SPDX-License-Identifier: Apache-2.0
"""An engine over a machine in memory, driven turn by turn, with a clock of the test's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from policy_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**options) -> World:
        made.append(World(tmp_path / f"run{len(made)}", **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
