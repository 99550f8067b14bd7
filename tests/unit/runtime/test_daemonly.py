# SPDX-License-Identifier: Apache-2.0
"""Programs do to their process what daemons do, under the library and on the stand-in driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import good, program, run

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("case", ["closes", "few", "stacks", "signals"])
def test_it_is_as_without_the_library(case: str) -> None:
    good(run(program("daemonly"), case, DETSHARE_PARK="1"))


@pytest.mark.parametrize("case", ["listed", "lies"])
def test_strangers_who_share_its_network_get_nothing_from_it_and_leave_nothing(case: str) -> None:
    good(run(program("daemonly"), case, DETSHARE_PARK="1"))


def test_a_file_that_has_the_number_of_the_log_is_not_written_to(tmp_path: Path) -> None:
    good(run(program("daemonly"), "logs", DETSHARE_PARK="1", DETSHARE_LOG_FILE=str(tmp_path / "log")))
