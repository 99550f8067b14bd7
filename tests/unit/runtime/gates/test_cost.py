# SPDX-License-Identifier: Apache-2.0
"""What boards, gate and the stream's use add to a launch of a driver that does nothing, while nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gatekit import HOLD, Daemon, Program, build

from detshare.runtime import board_layout as layout

# compiled and measured: see test_launch_path.py for the whole library
pytestmark = [pytest.mark.e2e, pytest.mark.alone]

MOST_NS = 40.0


@pytest.fixture(scope="session")
def fast_shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("gates-fast"), "shell", ("-O2",))


@pytest.mark.parametrize("gate_us", [0, 1000], ids=["no higher class", "gates"])
@pytest.mark.parametrize("functions", [1, 50, 1000])
def test_a_launch_costs_at_most_40_ns_more(
    fast_shell: Path, daemon: Daemon, tmp_path: Path, functions: int, gate_us: int
) -> None:
    daemon.tenant(layout.CLASS_LOW, **(HOLD | {"gate_us": gate_us}))
    program = Program(fast_shell, daemon, tmp_path / "log")
    try:
        program.attach()
        # the best of a hundred rounds of a millisecond: a busy machine takes turns away, it gives none back
        bare, with_us = map(float, program.ask(f"bench 20000 {functions}").split())
    finally:
        program.close()
    assert bare < with_us < bare + MOST_NS
