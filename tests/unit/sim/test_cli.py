# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.ctl.sim import profile, speed
from detshare.ctl.sim.cli import cli

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
SHORT = ["--seconds", "2", "--seeds", "2"]
POLICY = """
from detshare.ctl.policy.types import Bind, Gate, Policy, Reflex

class Hold(Policy):
    tick_us = 1000.0
    def on_attach(self, now, tenant):
        return [Reflex("training", 0)] if tenant == "training" else []
    def on_tick(self, now):
        return [Bind("nobody", 8)] if now.now_us < 1500 else []
"""


def sim(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "detshare.ctl.sim.cli", *words], capture_output=True, text=True, check=False
    )


def run_json(*words: str) -> dict[str, dict[str, dict[str, float]]]:
    done = CliRunner().invoke(cli, ["run", *words, *SHORT, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, dict[str, dict[str, float]]] = json.loads(done.output)["schemes"]
    return found


def test_schemes_are_compared_with_intervals() -> None:
    found = run_json("--arrivals", "poisson", "--rate", "4", "--scheme", "alone", "--scheme", "temporal")
    assert set(found) == {"alone", "temporal"}
    assert found["temporal"]["TTFT ms p99"]["seeds"] == 2
    assert found["temporal"]["TTFT ms p99"]["half"] > 0
    assert found["alone"]["training, of alone"]["mean"] == 0


def test_a_policy_from_a_file_does_what_the_scheme_hold_does(tmp_path: Path) -> None:
    path = tmp_path / "hold.py"
    path.write_text(POLICY, encoding="utf-8")
    requests = ["--arrivals", "bursts", "--rate", "4"]
    plain = run_json(*requests, "--scheme", "split")["split"]
    held = run_json(*requests, "--scheme", "split", "--policy", str(path))["split"]
    assert held["training, of alone"]["mean"] < plain["training, of alone"]["mean"]
    assert held["TPOT ms p50"]["mean"] < plain["TPOT ms p50"]["mean"]
    assert held["actions refused"]["mean"] == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "defines 0 subclasses"),
        ("raise RuntimeError('no')", "cannot be loaded: RuntimeError: no"),
        (POLICY.replace("return [Bind", "return 1 / 0, [Bind"), "on_tick raised ZeroDivisionError"),
    ],
)
def test_a_policy_that_fails_is_a_message_and_exit_code_1(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text, encoding="utf-8")
    done = sim("run", "--arrivals", "poisson", "--policy", str(path), *SHORT)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_shipped_policy_is_named_with_parameters_and_at_the_pace_of_a_daemon() -> None:
    requests = ["--arrivals", "gamma", "--rate", "4", "--scheme", "time-slicing"]
    plain = run_json(*requests)["time-slicing"]
    fair = run_json(*requests, "--policy", "fair", "--param", "high=50", "--pace", "daemon")["time-slicing"]
    assert fair["TPOT ms p50"]["mean"] < plain["TPOT ms p50"]["mean"]
    assert fair["actions refused"]["mean"] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--policy", "unfair"], "there is no policy 'unfair'"),
        (["--policy", "fair", "--param", "high=much"], "high='much' is not a number"),
        (["--policy", "fair", "--param", "high"], "write key=value"),
        (["--param", "high=1"], "name one with --policy"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_2(words: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, ["run", "--arrivals", "poisson", *SHORT, *words])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_bad_usage_is_2_and_a_bad_file_is_1(tmp_path: Path) -> None:
    assert "name either" in (both := sim("run")).stderr
    assert both.returncode == 2
    assert sim("fleet", "--made", "0").returncode == 2
    bad = tmp_path / "bad.csv"
    bad.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", encoding="utf-8")
    done = sim("run", "--trace", str(bad))
    assert done.returncode == 1
    assert "bad.csv:2: TIMESTAMP is 'x'" in done.stderr


@pytest.mark.parametrize("command", ["run", "fleet", "profile", "speed"])
def test_help_has_an_example(command: str) -> None:
    done = CliRunner().invoke(cli, [command, "--help"])
    assert done.exit_code == 0
    assert f"Example: detshare-sim {command}" in " ".join(done.output.split())


def test_fleet_tells_the_place_of_each_tenant() -> None:
    done = CliRunner().invoke(cli, ["fleet", "--made", "50", "--json"], catch_exceptions=False)
    found = json.loads(done.output)
    assert found["at_least"] <= found["gpus"] < found["one_each"] == len(found["places"]) == 50


def test_the_packaged_profile_is_what_the_results_give() -> None:
    assert profile.packaged() == profile.build(RESULTS)


def test_a_profile_of_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    done = sim("profile", str(tmp_path))
    assert done.returncode == 1
    assert "weights.json: cannot be read" in done.stderr


def test_launches_and_events_are_counted_and_not_guessed() -> None:
    ticks = iter(range(100))
    cases = speed.measure(lambda: float(next(ticks)))  # each case takes one second of this clock
    assert [case.launches_per_s > case.events_per_s for case in cases] == [True, True, False]
    assert 19_000 < cases[1].launches_per_s < 22_000  # kernels of 104 us in 2 s, and a thousand others
