# SPDX-License-Identifier: Apache-2.0
"""The client programs on the stand-in: they end well, race-free, and their digests depend on nothing but the work."""

from __future__ import annotations

from pathlib import Path

import pytest
from client_programs import COMMANDS, result, run

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("name", list(COMMANDS))
def test_output_does_not_depend_on_time(clients: Path, name: str) -> None:
    real = result(run(clients / name, *COMMANDS[name]))
    assert real[-1].startswith("digest ")
    assert result(run(clients / name, *COMMANDS[name], FAKECUDA_CLOCK="virtual")) == real


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "view"])
def test_results_do_not_depend_on_the_number_of_sms(clients: Path, name: str) -> None:
    whole = run(clients / name, *COMMANDS[name], FAKECUDA_CLOCK="virtual")
    small = run(clients / name, *COMMANDS[name], FAKECUDA_CLOCK="virtual", FAKECUDA_SMS="24")
    assert result(small) == result(whole)


def test_what_the_program_sees_does_depend_on_it(clients: Path) -> None:
    assert result(run(clients / "view", FAKECUDA_SMS="24")) != result(run(clients / "view"))


def test_graph_and_plain_launches_compute_the_same(clients: Path) -> None:
    assert result(run(clients / "steady", "--graph", "1")) == result(run(clients / "steady"))


def test_census_reads_the_sms(clients: Path) -> None:
    for words in ([], ["--graph", "1"]):
        done = run(clients / "census", "--seconds", "1", *words, FAKECUDA_SMS="40")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0].split()[2:5] == ["40", "0", "39"]


@pytest.mark.parametrize("words", [["--streams", "0"], ["--streams", "17"]])
def test_steady_refuses_what_it_cannot_do(clients: Path, words: list[str]) -> None:
    assert run(clients / "steady", *words).returncode == 2
