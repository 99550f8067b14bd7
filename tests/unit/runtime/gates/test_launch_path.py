# SPDX-License-Identifier: Apache-2.0
"""`detshare bench launch-path` measures launches that pass the library; what the ns are is the bench's to judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import once

from detshare.tools.bench.launch_path import CASES, build, measure, pairs

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> Path:
        build(folder)
        return folder

    return once(tmp_path_factory, "launch-path", make)


def test_each_launch_is_counted_and_no_launch_is_without_the_library(built: Path) -> None:
    for case in CASES:
        # raises where the counts are not those of all launches, and none of the program without the library
        bare, managed, rounds = measure(built, case, 1000, 1)
        assert bare > 0 < managed
        assert [each["library"] for each in rounds] == [False, True], case.what


@pytest.mark.parametrize("stream", ["own", "legacy", "per-thread"])
def test_the_drivers_own_function_is_found_beside_the_librarys(built: Path, stream: str) -> None:
    driver, library, _ = pairs(built, stream, stand_in=True)
    assert driver > 0 < library
