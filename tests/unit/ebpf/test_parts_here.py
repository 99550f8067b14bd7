# SPDX-License-Identifier: Apache-2.0
"""Measurements for a GPU on this machine's kernel and the stand-in for libcuda: what needs no GPU in them is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builds import made

from detshare.tools import results
from detshare.tools.bench.ebpf import dirty, experiment, native, overhead

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("committed")]


@pytest.fixture(scope="module")
def stand_in(observers: None) -> Path:
    """The folder of a libcuda that does nothing on a GPU, where observers can be loaded."""
    native.build()
    return made("fakecuda")


@pytest.fixture
def here(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs and observers use it."""
    for name, value in {"LD_LIBRARY_PATH": str(stand_in), "FAKECUDA_CLOCK": "virtual"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("here")
def test_steps_change_what_dirty_reports(tmp_path: Path) -> None:
    rows = experiment.measure("dirty", tmp_path, True, ["plain"])
    assert [row.what for row in rows if row.ok is False] == []
    values = {row.what: row.value for row in rows}
    fill = dirty._NAMES["plain"]
    assert values[f"{fill}: allocations that changed, median"] == 1
    assert values[f"{fill}: bytes that may be dirty, median epoch"] == 1 << 20
    assert values[f"{fill}: epochs that were called partial"] == 0
    assert results.check(tmp_path / "dirty-gpu.json") == []


@pytest.mark.usefixtures("here")
def test_the_launcher_launches_as_often_as_it_is_told() -> None:
    with overhead.launcher() as program:
        answer = program.say("launch 1009")
        assert answer["launches"] == 1009
        paced = program.say("pace 200 1000")
        assert 0.19 < paced["ns"] / 1e9 < 20.0
        assert program.end() == 0


@pytest.mark.usefixtures("here")
def test_a_prime_number_of_launches_is_counted(tmp_path: Path) -> None:
    rows = {row.what: row for row in experiment.measure("ebpf-overhead", tmp_path, True, ["count"])}
    # PyTorch is not here; the other half stands
    assert rows["launches by the driver's interface that `launches` counted"].value == overhead.COUNTED
    raw = results.load(tmp_path / "ebpf-overhead-gpu.json")
    assert raw.proof == "gpu"
    assert json.loads((tmp_path / "ebpf-overhead-gpu.json").read_text())["command"].endswith("--quick --part count")
