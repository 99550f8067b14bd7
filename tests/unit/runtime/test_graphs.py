# SPDX-License-Identifier: Apache-2.0
"""Graphs, launches that must be resident, the memory limit: C programs under libdetshare.so on the stand-in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from builds import ROOT, once
from programs import CLIENTS, FLAGS, INCLUDES, good, program, run

pytestmark = pytest.mark.e2e

PARTS = ("stream/resident", "shm/ledger", "api/array")


def parts(factory: pytest.TempPathFactory, *flags: str) -> Path:
    """resident.c, ledger.c and array.c with a test's stand-ins for the rest of the library."""
    sources = [str(CLIENTS / "parts.c"), *(str(ROOT / "runtime" / f"{name}.c") for name in PARTS)]

    def build(folder: Path) -> Path:
        out = folder / "parts"
        subprocess.run(["gcc", *FLAGS, "-O2", *flags, *INCLUDES, *sources, "-o", str(out)], check=True)
        return out

    return once(factory, "parts-checked" if flags else "parts", build)


@pytest.mark.parametrize("case", ["kernel", "module", "child", "memset", "ways", "capture"])
def test_graph_runs_on_the_tier_of_now(case: str) -> None:
    good(run(program("graphs"), case))


def test_first_launches_wait_for_the_executable_of_a_standing_tier() -> None:
    good(run(program("graphs"), "first", FAKECUDA_GRAPH_US="3000"))


@pytest.mark.parametrize(("case", "us"), [("late", "600000"), ("passing", "100000")])
def test_no_launch_waits_for_ever_or_for_a_tier_that_passes(case: str, us: str) -> None:
    good(run(program("graphs"), case, FAKECUDA_GRAPH_US=us))


@pytest.mark.parametrize("case", ["allocation", "cooperative"])
def test_graph_that_cannot_move_runs_on_the_whole_gpu_and_is_counted(case: str) -> None:
    good(run(program("graphs"), case))


@pytest.mark.parametrize("case", ["order", "streams", "handover"])
def test_launches_of_a_graph_keep_their_order_across_tiers(case: str) -> None:
    good(run(program("graphs"), case))


@pytest.mark.parametrize("case", ["update", "update_always", "parameters", "enabled"])
def test_changes_of_an_executable_graph_reach_all_tiers(case: str) -> None:
    good(run(program("graph_changes"), case))


@pytest.mark.parametrize("case", ["user_objects", "destroy"])
def test_graphs_keep_nothing_alive(case: str) -> None:
    good(run(program("graph_changes"), case))


def test_variants_are_bounded_by_their_nodes() -> None:
    good(run(program("graphs"), "bound"))


@pytest.mark.parametrize("case", ["cooperative", "kernel", "name", "unload", "cluster"])
def test_launch_that_must_be_resident_goes_where_it_has_room(case: str) -> None:
    good(run(program("resident"), case))


@pytest.mark.parametrize("case", ["linear", "stream", "virtual", "arrays", "threads", "contexts", "greedy"])
def test_memory_limit_refuses_and_counts_exactly(case: str) -> None:
    good(run(program("memory"), case))


@pytest.mark.parametrize("case", ["view", "large"])
def test_program_sees_the_limit_as_the_size_of_the_gpu(case: str) -> None:
    good(run(program("memory"), case))


@pytest.mark.parametrize("case", ["forget", "names", "shapes", "ledger", "handles", "arrays"])
def test_parts_by_themselves(tmp_path_factory: pytest.TempPathFactory, case: str) -> None:
    good(run(parts(tmp_path_factory, "-fsanitize=address,undefined"), case, preload=""))
