# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from detshare.tools.bench import adoption, cli, sweep, temporal
from detshare.tools.bench.catalog import PAIRS, WORKLOADS, census, operators, small, zoo
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.spatial import compatibility, overhead


def test_every_experiment_is_a_command_with_its_options() -> None:
    temporal_lane = {"adoption", "driver-calls", "harmless", "pause", "sweep", "temporal", "weights"}
    spatial_lane = {"compatibility", "determinism", "isolation", "lane-choice", "live-change", "mps-faults"}
    spatial_lane |= {"overhead", "pair"}
    parking = {"migrate", "park-lazy", "park-compat", "park-faults", "oversubscribe", "models"}
    assert set(cli.EXPERIMENTS) == temporal_lane | spatial_lane | {"park", "park-deep", "park-incremental"} | parking
    for name in cli.EXPERIMENTS:
        command = cli.bench.commands[name]
        words = {word for parameter in command.params for word in parameter.opts}
        assert {"--seconds", "--rounds", "--out", "--quick", "--run-dir"} <= words
        assert ("--budget-s" in words) is (name == "sweep" or name in spatial_lane | parking)
        assert find_spec(cli.EXPERIMENTS[name].module(name)) is not None
        assert isinstance(command, click.Command)


def test_every_command_says_what_it_does_and_where_its_result_goes() -> None:
    for name in cli.bench.commands:
        done = CliRunner().invoke(cli.bench, [name, "--help"])
        assert done.exit_code == 0
        assert "--out" in done.output, name


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here: the command would run")
def test_without_a_gpu_or_root_the_command_says_what_to_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["pause", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "bench pause" in done.output
    assert "root" in done.output or "make demo" in done.output
    assert list(tmp_path.iterdir()) == []


def test_bad_usage_is_2() -> None:
    assert CliRunner().invoke(cli.bench, ["pause", "--rounds", "0"]).exit_code == 2
    assert CliRunner().invoke(cli.bench, ["nothing"]).exit_code == 2


def test_the_sweep_has_every_cell_once_and_the_most_telling_first() -> None:
    cells = sweep.cells(1)
    assert len(cells) == len(set(cells)) == len(sweep.BE_US) * len(sweep.LC_MS) * 4
    assert {(cell.lc_level, cell.be_level) for cell in cells[:32]} == {("high", "low")}
    assert {cell.be_us for cell in cells[:16]} == set(sweep.BE_US)
    assert cells == sweep.cells(1) != sweep.cells(2)


def test_every_command_of_the_catalog_names_a_program_that_is_there() -> None:
    commands = [command for pair in (*PAIRS, small(1, 2)) for command in (pair.latency, pair.background)]
    commands += [*adoption.ZOO.values(), zoo("late"), zoo("churn"), census(), operators()]
    commands += [*compatibility.PROGRAMS.values(), *(measure.argv for measure in overhead.MEASURES.values())]
    for command in commands:
        assert Path(command[1]).is_file(), command
    assert {Path(command[1]).parent for command in commands} == {WORKLOADS, WORKLOADS / "zoo", WORKLOADS / "compat"}


# gates.py is no program that is steered: it plays the library's side of a board.
STEERED = sorted(path for path in WORKLOADS.rglob("*.py") if path.name != "gates.py")


@pytest.mark.parametrize("path", STEERED, ids=lambda path: str(path.relative_to(WORKLOADS)))
def test_a_workload_imports_nothing_of_detshare(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "import" in line and "detshare" in line] == []


def test_kernels_without_a_driver_say_so() -> None:
    command = [sys.executable, str(WORKLOADS / "kernels.py"), "periodic", "--seconds", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        assert '"event":"summary"' in done.stdout
    else:
        assert "kernels.py periodic: " in done.stderr
        assert "Traceback" not in done.stderr


def test_temporal_rows_carry_the_targets_of_the_issue(tmp_path: Path) -> None:
    found = temporal.Found()
    for scheme, p99, images in (
        ("alone", 100.0, None),
        ("default", 300.0, 50.0),
        ("managed", 104.0, 51.0),
        ("released", 310.0, 49.0),
    ):
        for _ in range(2):
            found.add(scheme, [90.0, p99], 100.0, images)
    with Session(Options("temporal", 1.0, 2, tmp_path)) as session:
        temporal.report(session, PAIRS[0], found)
        temporal.report_endless(session, found)
    judged = {row.what: (row.value, row.baseline, row.target, row.ok) for row in session.rows if row.target}
    name = PAIRS[0].name
    assert judged == {
        f"{name}: managed: LC p99": (104.0, 100.0, "<= 1.05 x baseline", True),
        f"{name}: managed: LC requests behind the p99": (4, None, ">= 1000", False),
        f"{name}: managed: BE": (51.0, 50.0, ">= 1 x baseline", True),
        "decode 10 ms + endless kernel: managed: LC p99 above alone": (4.0, None, "<= 1000", True),
    }


def test_the_50_us_pair_is_published_without_a_target(tmp_path: Path) -> None:
    found = temporal.Found()
    for scheme in temporal.SCHEMES:
        found.add(scheme, [1.0, 2.0], 500.0, None if scheme == "alone" else 5.0)
    with Session(Options("temporal", 1.0, 1, tmp_path)) as session:
        temporal.report(session, small(1, 2), found)
    assert session.rows
    assert all(row.target is None for row in session.rows)
