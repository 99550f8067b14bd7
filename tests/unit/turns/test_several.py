# SPDX-License-Identifier: Apache-2.0
"""Turns on several GPUs: contexts without work, and a GPU that answers nothing any more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from turns_stage import Stage, background

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, Call, ModelDriver, ModelSwitchLog
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import Latency, Workload
from detshare.ctl.cli import tables
from detshare.ctl.core.driver import DriverError, Instance, Switch
from detshare.ctl.top.rows import gpu_rows
from tests.unit.model import programs

WHOLE = 5000.0
"""launches a second of one that has a GPU to itself, at least"""


def begin(stage: Stage, name: str, gpu: int, work: Workload, klass: str = "low", *, everywhere: bool = False) -> None:
    """A program that works on one GPU; with `everywhere` it has contexts on all."""
    make = programs.multi_gpu if everywhere else lambda *args: scenario.cuda_process(*args, gpu=gpu)
    process: ModelProcess = make(stage.driver, name)
    stage.driver.machine.start_work(process, stage.driver.gpu_models[gpu], work)
    stage.programs[name] = process, work
    stage.backend.set_priority(str(process.id.pid), klass)


def play(stage: Stage, seconds: float) -> dict[str, float]:
    """What each did per second, while the daemon looks, too."""
    total: dict[str, float] = dict.fromkeys(stage.programs, 0.0)
    for _ in range(round(4 * seconds)):
        stage.backend.look()
        for name, rate in stage.run(0.25).items():
            total[name] += rate / round(4 * seconds)
    return total


def test_a_context_without_work_takes_no_turns_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch, gpus=3)
    begin(stage, "stray", 0, background(1), everywhere=True)
    begin(stage, "first", 1, background(2))
    begin(stage, "second", 2, background(3))
    play(stage, 5)
    assert min(play(stage, 4).values()) > WHOLE
    stage.backend.close()


def test_who_works_on_another_gpu_after_all_has_turns_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on one at a time runs there, and each goes on."""
    stage = Stage(tmp_path, monkeypatch, gpus=2)
    begin(stage, "stray", 0, background(1), everywhere=True)
    begin(stage, "other", 1, background(2))
    play(stage, 5)
    there = stage.driver.gpu_models[1]
    stage.driver.machine.start_work(stage.programs["stray"][0], there, background(3))
    play(stage, 1)
    pids = {process.id.pid for process, _ in stage.programs.values()}
    for _ in range(2000):
        stage.driver.machine.advance(stage.turns._turn())
        on = {t.pid for t in there.tsgs if t.runlist == 0 and t.channels and not t.paused}
        assert not pids <= on
    assert min(play(stage, 4).values()) > 0.4 * WHOLE
    stage.backend.close()


def test_a_context_without_work_makes_room_for_high_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may begin to work at any time, and the request of that moment is not to wait for it."""
    stage = Stage(tmp_path, monkeypatch, gpus=2)
    begin(stage, "stray", 0, background(1), everywhere=True)
    begin(stage, "other", 1, background(2))
    play(stage, 5)
    begin(stage, "high", 1, Latency(800, 1000), "high")
    play(stage, 1)
    assert {tenant.tenant.gpus for tenant in stage.turns._rotation.states.values()} >= {
        frozenset(gpu.info.uuid for gpu in stage.driver.gpu_models)
    }
    stage.backend.close()


def test_a_gpu_that_fell_off_the_bus_leaves_the_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch, gpus=2)
    for gpu in (0, 1):
        for n in (0, 1):
            begin(stage, f"{gpu} {n}", gpu, background(2 * gpu + n))
    play(stage, 2)
    lost = {process.id for name, (process, _) in stage.programs.items() if name.startswith("1")}
    read = ModelSwitchLog.read

    def off_the_bus(call: Call) -> None:
        stage.driver.inject = {call.name: stage.driver.abi.status("NV_ERR_GPU_IS_LOST")} if call.process in lost else {}

    def unread(log: ModelSwitchLog) -> list[Switch]:
        if log._timeline is stage.driver.gpu_models[1].timeline:
            raise DriverError("the GPU is lost")
        return read(log)

    stage.driver.before_control = off_the_bus
    monkeypatch.setattr(ModelSwitchLog, "read", unread)
    play(stage, 1)
    rates = play(stage, 4)
    assert min(rates["0 0"], rates["0 1"]) > 0.4 * WHOLE
    stage.driver.before_control, stage.driver.inject = None, {}
    stage.backend.close()


def test_a_gpu_that_the_daemon_does_not_have_stops_no_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a program with GPUs of another container, or with one that was plugged in later."""
    mine = [H100]
    monkeypatch.setattr(ModelDriver, "gpus", lambda driver: mine)
    stage = Stage(tmp_path, monkeypatch, gpus=2)
    begin(stage, "here and there", 0, background(1), everywhere=True)
    begin(stage, "here", 0, background(2))
    begin(stage, "there", 1, background(3))
    play(stage, 1)
    rates = play(stage, 4)
    assert min(rates["here and there"], rates["here"]) > 0.4 * WHOLE
    assert rates["there"] > WHOLE
    stage.backend.close()


def test_a_gpu_whose_log_is_refused_counts_as_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's log alone does not tell that it is not."""
    stage = Stage(tmp_path, monkeypatch, gpus=2)
    there, read = stage.driver.gpu_models[1], ModelSwitchLog.read

    def unread(log: ModelSwitchLog) -> list[Switch]:
        if log._timeline is there.timeline:
            raise DriverError("no log of this one")
        return read(log)

    monkeypatch.setattr(ModelSwitchLog, "read", unread)
    begin(stage, "both", 0, background(1), everywhere=True)
    stage.driver.machine.start_work(stage.programs["both"][0], there, background(3))
    begin(stage, "other", 1, background(2))
    play(stage, 6)
    pids = {process.id.pid for process, _ in stage.programs.values()}
    for _ in range(500):
        stage.driver.machine.advance(stage.turns._turn())
        assert not pids <= {t.pid for t in there.tsgs if t.runlist == 0 and t.channels and not t.paused}
    stage.backend.close()


CUT = (Instance("MIG-a", "1g.10gb"), Instance("MIG-b", "1g.10gb"), Instance("MIG-c", "3g.40gb"))


def test_mixed_chips_and_one_that_mig_cut_are_told_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of different instances run at once: nobody has turns there, and the whole GPU beside it has them."""
    stage = Stage(tmp_path, monkeypatch, gpus=3)
    whole, cut, empty = stage.driver.gpu_models
    cut.info = replace(cut.info, name="NVIDIA A100-SXM4-80GB", mig=CUT)
    empty.info = replace(empty.info, name="NVIDIA H200", minor=7, mig=())
    for gpu in (0, 1):
        for n in (0, 1):
            begin(stage, f"{gpu} {n}", gpu, background(2 * gpu + n))
    usage = stage.driver.usage
    first = stage.programs["1 0"][0].id
    placed = {(first.pid, cut.info.uuid): CUT[2]}
    monkeypatch.setattr(stage.driver, "usage", lambda shares=None: replace(usage(shares), instance=placed))
    for _ in range(400):
        stage.driver.machine.advance(stage.turns._turn())
        assert not any(tsg.paused for tsg in cut.tsgs)
    stage.backend._watch._usage = float("-inf"), usage()
    seen = stage.backend.look()
    assert {each.gpu for each in seen.schedules} == {whole.info.uuid}
    assert any("GPU 1 is cut by MIG" in each for each in seen.warnings)
    assert not any("GPU 7" in each for each in seen.warnings)
    notes = {each.id: each.notes for each in seen.programs}
    assert "on MIG instance MIG-c (3g.40gb)" in notes[first]
    answer = json.loads(json.dumps(seen.to_json()))
    told = [line.plain for line in tables.rotations(answer)]
    assert told[:2] == [
        "GPU 1: MIG: 1g.10gb MIG-a, 1g.10gb MIG-b, 3g.40gb MIG-c",
        "GPU 7: MIG: no instance, so nothing can run on it",
    ]
    shown = [(row.index, row.name) for row in gpu_rows(answer)]
    assert shown[0] == ("0", H100.name)
    assert shown[1] == ("1", "NVIDIA A100-SXM4-80GB, MIG: 2 x 1g.10gb, 1 x 3g.40gb")
    (listed,) = (check.detail for check in stage.backend.doctor() if check.name == "gpus")
    assert all(text in listed for text in ("A100", "3g.40gb MIG-c", "no instance"))
    stage.backend.close()
