# SPDX-License-Identifier: Apache-2.0
"""The cost of the whole library on a launch, as `detshare bench launch-path` measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from detshare.tools.bench.launch_path import CASES, MOST_NS, build, measure, pairs


@pytest.mark.e2e
@pytest.mark.alone
def test_the_library_adds_at_most_40_ns_to_a_launch(tmp_path: Path) -> None:
    build(tmp_path)
    for case in CASES[:-1]:
        bare, managed, _ = measure(tmp_path, case, 50_000, 2)
        assert bare < managed <= bare + MOST_NS, case.what
    # in turns with the driver's own function, as on a GPU
    for stream in ("own", "legacy", "per-thread"):
        driver, library, added = pairs(tmp_path, stream, stand_in=True)
        assert 0 < added <= MOST_NS, stream
        assert driver < library
