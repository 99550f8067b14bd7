# SPDX-License-Identifier: Apache-2.0
"""A service of the spatial lane, with a stand-in for MPS."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from room_machine import Machine
from spatial_lane import Lane, mps_control, short_folder

from detshare.runtime.mps import Mps


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture
def control(folder: Path) -> Path:
    return mps_control(folder)


@pytest.fixture
def mps(folder: Path, control: Path) -> Iterator[Mps]:
    """Not started. Newcomers are refused while the file `refuse` is there."""
    probe = ["sh", "-c", f"test ! -e {folder}/refuse || {{ echo CUDA error 807; exit 1; }}"]
    made = Mps(folder / "mps", str(control), probe)
    yield made
    made.stop()


@pytest.fixture
def lane(folder: Path, mps: Mps) -> Iterator[Lane]:
    made = Lane(folder, mps)
    yield made
    made.close()
    made.mps.stop()


@pytest.fixture
def machines(folder: Path, control: Path) -> Iterator[Any]:
    """Makes daemons that make room; all end with the test."""
    all_of_them: list[Machine] = []

    def make(*args: Any, **named: Any) -> Machine:
        all_of_them.append(Machine(folder, control, *args, **named))
        return all_of_them[-1]

    yield make
    for each in all_of_them:
        each.close()
