# SPDX-License-Identifier: Apache-2.0
"""Memory that comes back lazily, under the library and on the stand-in driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import good, program, run

from tests.rest import after_first

pytestmark = pytest.mark.e2e

CASES = ("round", "over_host", "order", "questions", "again", "changed", "refused", "ends")
LONG = ("returns", "beside")


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.rest) for case in LONG)])
def test_it_runs_while_its_memory_comes_home(case: str, tmp_path: Path) -> None:
    good(run(program("lazy"), case, DETSHARE_PARK="1", DAEMON_LAZY="1", FAKECUDA_TAKEN=str(tmp_path / "taken")))


@pytest.mark.parametrize("seed", after_first(range(4)))
def test_contents_are_the_same_after_random_parks(seed: int) -> None:
    out = good(run(program("parks"), str(seed), "150", DETSHARE_PARK="1", DAEMON_LAZY="1"))
    assert int(out.split()[1]) > 3


def test_threads_lose_nothing() -> None:
    out = good(run(program("parkers"), "4", "20", DETSHARE_PARK="1", DAEMON_LAZY="1"))
    assert int(out.split()[1]) > 3


def test_without_virtual_memory_on_the_host_it_comes_back_as_a_whole() -> None:
    result = run(program("parks"), "5", "60", DETSHARE_PARK="1", DAEMON_LAZY="1", FAKECUDA_NUMA="0")
    good(result)
    assert "it will come back as a whole: the driver gives no host memory" in result.stderr
