# SPDX-License-Identifier: Apache-2.0
"""The client programs under libdetshare.so, moved to other SMs at random moments: same output, no lost order."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from builds import FAKECUDA, LIBRARY, ROOT, made, once
from client_programs import COMMANDS, result, run

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
DAEMON = ROOT / "tests" / "unit" / "runtime" / "clients"


@pytest.fixture(scope="module")
def shaker(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that moves a program."""
    made("runtime")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    flags += [f"-I{ROOT / 'runtime' / 'shm'}", f"-I{DAEMON}"]

    def build(folder: Path) -> Path:
        out = folder / "shaker.so"
        subprocess.run(["gcc", *flags, "-o", str(out), str(HERE / "shaker.c"), str(DAEMON / "daemon.c")], check=True)
        return out

    return once(tmp_path_factory, "shaker", build)


def shaken(
    shaker: Path, folder: Path, program: Path, *words: str, seed: int, longest_us: int = 300
) -> tuple[subprocess.CompletedProcess[str], int]:
    """The run, and how often streams moved."""
    out = folder / "moves"
    done = run(
        program, *words, LD_PRELOAD=f"{LIBRARY} {shaker}", TMPDIR=str(shaker.parent), SHAKER_OUT=str(out),
        SHAKER_SEED=str(seed), SHAKER_US=str(longest_us), LD_LIBRARY_PATH=str(FAKECUDA),
    )  # fmt: skip
    remaps = sum(int(line.split()[1]) for line in out.read_text().splitlines()) if out.exists() else 0
    return done, remaps


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", list(COMMANDS))
def test_random_moves_change_nothing(clients: Path, shaker: Path, tmp_path: Path, name: str, seed: int) -> None:
    done, _ = shaken(shaker, tmp_path, clients / name, *COMMANDS[name], seed=seed)
    assert result(done) == result(run(clients / name, *COMMANDS[name]))


@pytest.mark.parametrize("words", [["--streams", "7"], ["--graph", "1"]])
def test_many_moves_under_load(clients: Path, shaker: Path, tmp_path: Path, words: list[str]) -> None:
    rounds, remaps = 150, 0
    while remaps <= 100:  # how many come in a round depends on who else wants this machine's processors
        rounds = min(2 * rounds, 20_000)
        done, remaps = shaken(shaker, tmp_path, clients / "steady", "--rounds", str(rounds), *words, seed=7)
        assert result(done) == result(run(clients / "steady", "--rounds", str(rounds), *words))
        assert remaps > 100 or rounds < 20_000
