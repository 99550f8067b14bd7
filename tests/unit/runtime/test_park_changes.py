# SPDX-License-Identifier: Apache-2.0
"""Parks that copy what changed, under the library and on the stand-in driver."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builds import FAKECUDA, ROOT, made, once
from programs import FLAGS, good, program, run

from tests import patience

pytestmark = pytest.mark.e2e

CASES = ("once", "writes", "returned", "grows", "full", "off", "again")
HASH = "detshare_hash"


@pytest.mark.parametrize("case", CASES)
def test_a_park_copies_what_changed(case: str) -> None:
    good(run(program("kept"), case, DETSHARE_PARK="1"))


def test_host_memory_that_is_asked_back_in_the_middle_of_a_park_stays() -> None:
    good(run(program("kept"), "together", DETSHARE_PARK="1", FAKECUDA_KERNEL_US=f"{HASH}:60000"))


def test_a_program_that_allocates_while_a_park_makes_room_is_parked() -> None:
    """On an H100 a training that was about to begin was refused its move: there is no host memory for it."""
    good(run(program("kept"), "meanwhile", DETSHARE_PARK="1", FAKECUDA_REGISTER_US="1000000"))


def test_what_another_gpu_writes_is_seen() -> None:
    good(run(program("kept"), "peer", DETSHARE_PARK="1", FAKECUDA_DEVICES="2"))


FAULTS = {
    "no-kernel": ({"FAKECUDA_LOAD_FAIL": HASH}, "its kernel cannot be loaded: CUDA_ERROR_JIT_COMPILER_NOT_FOUND"),
    "no-launch": ({"FAKECUDA_LAUNCH_FAIL": HASH}, "its kernel does not run: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_where_changes_cannot_be_found_everything_is_copied(case: str) -> None:
    environment, words = FAULTS[case]
    result = run(program("kept"), case, DETSHARE_PARK="1", **environment)
    good(result)
    assert result.stderr.count(f"cannot tell what changed ({words}): everything is copied") == 1


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made("fakecuda")

    def build(folder: Path) -> Path:
        out = folder / "lying_hash.so"
        source = Path(__file__).with_name("lying_hash.c")
        linked = [f"-I{ROOT / 'tests' / 'fakecuda'}", f"-L{FAKECUDA}", "-lcuda"]
        patience.run(["gcc", *FLAGS, "-shared", "-fPIC", str(source), "-o", str(out), *linked], check=True)
        return out

    return once(tmp_path_factory, "lying-hash", build)


def test_a_gpu_with_wrong_digests_is_found_out_at_once(liar: Path) -> None:
    result = run(program("kept"), "wrong", DETSHARE_PARK="1", FAKECUDA_PLUGINS=str(liar))
    good(result)
    assert result.stderr.count("computes another digest than the reference") == 1


@pytest.mark.rest
def test_nothing_is_missed_in_a_thousand_epochs() -> None:
    out = good(run(program("epochs"), "1", "1000", DETSHARE_PARK="1", FAKECUDA_CLOCK="virtual"))
    found = re.fullmatch(r"copied (\d+) of (\d+)\n", out)
    assert found is not None
    # at most three writes, each to two grains of the three, and one that is looked at
    assert int(found[1]) < 0.9 * int(found[2])


def test_an_epoch_that_is_wrong_is_found() -> None:
    result = run(program("epochs"), "2", "20", DETSHARE_PARK="1", FAKECUDA_CLOCK="virtual", EPOCHS_SPOIL="11")
    assert result.returncode == 1
    assert "epoch 11: block" in result.stderr
