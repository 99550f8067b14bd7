# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from rmshell import SOURCES, Core, build

from detshare.tools import results
from detshare.tools.bench.rm_core import rm_core

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("committed")]  # each compiles the core once more


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shell with the thread sanitizer, which ends it at a data race."""
    program = build(tmp_path_factory.mktemp("threads"), "shell", SOURCES, ("-O1", "-fsanitize=thread"))
    begun = subprocess.run([str(program)], input="", capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in begun.stderr:
        pytest.skip("needs a kernel whose address layout gcc's thread sanitizer knows (sysctl vm.mmap_rnd_bits=28)")
    return program


def test_threads_that_charge_race_on_nothing(watched: Path) -> None:
    core = Core(watched)
    race = core.numbers("race", 8, 5_000, 1_000_000, 300_000)
    assert (race["over"], race["left"]) == (0, 0)
    core.close()


def test_threads_that_share_memory_race_on_nothing_and_pay_once(watched: Path) -> None:
    core = Core(watched)
    race = core.numbers("race-memory", 8, 2_000)
    assert (race["common"], race["left"], race["peak"]) == (1000, 0, 1000)
    assert race["refused"] > 0
    core.close()


def test_the_benchmark_gives_a_result_that_checks(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(rm_core, ["--pairs", "1000", "--repeats", "3", "--out", str(tmp_path), "--json"])
    assert outcome.exit_code in {0, 1}, outcome.output  # a busy machine may miss the targets
    rows = json.loads(outcome.output)
    assert len(rows) == 17
    assert all(row["value"] > 0 for row in rows[:-1])
    assert results.check(tmp_path / "rm-core.json") == []
