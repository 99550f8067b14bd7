# SPDX-License-Identifier: Apache-2.0
"""Floors of classes on single GPUs: what is kept of them, and what programs have of each GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from turns_stage import Stage, background

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, ModelDriver
from detshare.ctl.backends.model.workload import Latency, Workload
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.turns.floors import Floors
from detshare.ctl.backends.root.turns.members import Member, tenant_of
from detshare.ctl.backends.root.turns.rotation import Rotation
from detshare.ctl.core.backend import BadRequest, NeedsModule
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import ClassFloor, Outcome
from detshare.ctl.core.verbs import request
from detshare.ctl.policy.view import Viewer
from tests.unit.model import programs

ONE, TWO = H100.uuid, programs.second_gpu().uuid
NAME = "floors-model.json"


def set_class(backend: RootBackend, **args: object) -> Outcome:
    return backend.do(request("set-class", "low", **args))


def two(run_dir: Path, *, swapped: bool = False) -> RootBackend:
    """A machine with two GPUs; `swapped`: their numbers are each other's."""
    gpus = [H100, programs.second_gpu()]
    if swapped:
        gpus = [replace(gpu, minor=1 - gpu.minor) for gpu in gpus]
    return RootBackend(ModelDriver(gpus=gpus), run_dir, name="model")


def test_a_gpus_floor_outlives_the_daemon(tmp_path: Path) -> None:
    Floors(tmp_path, "model").set("low", 0.1, TWO)
    Floors(tmp_path, "model").set("low", 0.05)
    again = Floors(tmp_path, "model")
    assert (again.of("low"), again.of("low", ONE), again.of("low", TWO)) == (0.05, 0.05, 0.1)
    again.set("low", None, TWO)
    assert Floors(tmp_path, "model").of("low", TWO) == 0.05
    assert json.loads((tmp_path / NAME).read_text()) == {"low": 0.05}  # as an older release writes it
    with pytest.raises(BadRequest, match="out of range"):
        again.set("low", 0.9, TWO)


def test_a_reset_is_for_each_gpu(tmp_path: Path) -> None:
    floors = Floors(tmp_path, "model")
    for gpu in ("", ONE, TWO):
        floors.set("low", 0.1, gpu)
        floors.set("idle", 0.2, gpu)
    floors.set("low", None)
    assert {Floors(tmp_path, "model").of("low", gpu) for gpu in ("", ONE, TWO)} == {0.02}
    assert {Floors(tmp_path, "model").of("idle", gpu) for gpu in ("", ONE, TWO)} == {0.2}


def test_an_older_releases_file_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"low": 0.05, "normal": 0.1}\n')
    Floors(tmp_path, "model").set("idle", 0.3, TWO)
    again = Floors(tmp_path, "model")
    assert again.table() == {"normal": 0.1, "low": 0.05, "idle": 0.01}
    assert again.of("idle", TWO) == 0.3
    kept = json.loads((tmp_path / NAME).read_text())
    assert {name: kept[name] for name in ("low", "normal")} == {"low": 0.05, "normal": 0.1}  # where older ones look


@pytest.mark.parametrize("gpus", [5, [], {"GPU-1": 7}, {"GPU-1": {"low": 7}}, {"GPU-1": {"low": "x"}}])
def test_garbage_of_gpus_is_set_aside(tmp_path: Path, gpus: object) -> None:
    (tmp_path / NAME).write_text(json.dumps({"low": 0.05, "gpus": gpus}))
    assert Floors(tmp_path, "model").of("low") == 0.02
    assert (tmp_path / "floors-model.unreadable").exists()


def test_a_number_means_its_gpu_whatever_its_number_is_later(tmp_path: Path) -> None:
    backend = two(tmp_path)
    (change,) = set_class(backend, floor_permille=100, gpu=1).changed
    assert change.note == "class low: at least 10 % of the time on GPU 1"
    assert backend.look().floors[-1] == ClassFloor("low", 0.1, 1, TWO)
    backend.close()
    later = two(tmp_path, swapped=True)
    assert later.look().floors[-1] == ClassFloor("low", 0.1, 0, TWO)
    set_class(later, reset=True, gpu=1)  # the other one's, which has none
    assert later.look().floors[-1] == ClassFloor("low", 0.1, 0, TWO)
    (change,) = set_class(later, reset=True, gpu=0).changed
    assert change.note == "class low: at least 2 % of the time on GPU 0"
    assert all(not row.uuid for row in later.look().floors)


def test_a_gpu_that_is_gone_keeps_its_floor(tmp_path: Path) -> None:
    backend = two(tmp_path)
    set_class(backend, floor_permille=100, gpu=1)
    backend.close()
    alone = RootBackend(ModelDriver(), tmp_path, name="model")
    set_class(alone, floor_permille=50)
    assert alone.look().floors[-1] == ClassFloor("low", 0.1, None, TWO)
    alone.close()
    assert two(tmp_path).look().floors[-1] == ClassFloor("low", 0.1, 1, TWO)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    backend = two(tmp_path)
    with pytest.raises(BadRequest, match="there is no GPU 2: there are 0, 1"):
        set_class(backend, floor_permille=100, gpu=2)
    with pytest.raises(BadRequest, match="there is no GPU 2"):
        set_class(backend, reset=True, gpu=2)
    with pytest.raises(NeedsModule):
        set_class(backend, floor_permille=100, gpu=1, turn_us=50_000)
    with pytest.raises(BadRequest, match="nothing is to be changed"):
        set_class(backend, gpu=1)
    assert not (tmp_path / NAME).exists()


def test_a_program_on_gpus_that_differ_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch, gpus=2)
    both = programs.multi_gpu(stage.driver)
    one = scenario.cuda_process(stage.driver, "python one.py", gpu=1)
    for process in (both, one):
        stage.backend.set_priority(str(process.id.pid), "low")
    set_class(stage.backend, floor_permille=100, gpu=1)
    seen = stage.backend.look()
    found = {each.id: each for each in seen.programs}
    assert (found[both.id].floor, found[both.id].floors) == (0.02, {ONE: 0.02, TWO: 0.1})
    assert (found[one.id].floor, found[one.id].floors) == (0.1, {})
    viewer = Viewer(backend="model")
    viewer.look(seen, 1e6)
    name = str(both.id.pid)
    assert [viewer.tenants(gpu)[name].floor for gpu in (ONE, TWO)] == [2.0, 10.0]
    stage.backend.set_priority(str(both.id.pid), "low", floor=0.05)  # its own holds on each
    mine = next(each for each in stage.backend.look().programs if each.id == both.id)
    assert (mine.floor, mine.floors) == (0.05, {})
    stage.backend.close()


def member(pid: int, gpu: str, floor: float, two: float | None = None) -> Member:
    return Member(ProcessId(pid, 1), "job", gpu, 2, 1, floor, (), apart={} if two is None else {TWO: two})


def test_a_job_has_on_each_gpu_that_gpus_floor() -> None:
    job = tenant_of([member(1, ONE, 0.02, two=0.1), member(2, TWO, 0.02, two=0.1)])
    assert [job.floor_on(gpu) for gpu in (ONE, TWO)] == [0.02, 0.1]
    rotation = Rotation()
    rotation.update([job], 1.0)
    assert [rotation.floors(gpu) for gpu in (ONE, TWO)] == [0.02, 0.1]
    own = tenant_of([member(1, ONE, 0.05), member(2, TWO, 0.02, two=0.1)])  # a rank's own is the job's
    assert [own.floor_on(gpu) for gpu in (ONE, TWO)] == [0.05, 0.1]
    none = tenant_of([member(1, ONE, 0.02, two=0.0), member(2, TWO, 0.02, two=0.0)])
    assert [none.floor_on(gpu) for gpu in (ONE, TWO)] == [0.02, 0.0]


def test_each_gpu_gives_its_own_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts of 18 ms every 20 ms leave 8 %; where the floor is 20 % the rest comes in windows."""
    stage = Stage(tmp_path, monkeypatch, gpus=2)

    def begin(name: str, gpu: int, work: Workload, klass: str) -> None:
        process = scenario.cuda_process(stage.driver, name, gpu=gpu)
        stage.driver.machine.start_work(process, stage.driver.gpu_models[gpu], work)
        stage.programs[name] = process, work
        stage.backend.set_priority(str(process.id.pid), klass)

    for gpu in (0, 1):
        begin(f"lc{gpu}", gpu, Latency(18_000, 2_000, seed=9), "high")
        begin(f"be{gpu}", gpu, background(gpu), "low")
    set_class(stage.backend, floor_permille=200, gpu=1)
    stage.backend.look()
    stage.run(2)
    had = stage.run(8)
    assert had["be1"] * 175 == pytest.approx(0.2e6, rel=0.1)
    assert had["be0"] * 175 < 0.1e6
    set_class(stage.backend, reset=True, gpu=1)
    stage.backend.look()
    stage.run(2)
    assert stage.run(4)["be1"] * 175 < 0.1e6
    stage.backend.close()
