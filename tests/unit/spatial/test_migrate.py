# SPDX-License-Identifier: Apache-2.0
"""`migrate` of a program under the library: daemon, libdetshare.so and a CUDA program on a stand-in with two GPUs."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from park_machine import MIB, SPATIAL, Machine, Program
from spatial_lane import end_mps

from tests.patience import until
from tests.rest import after_first

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
TEMPORAL = ("--lane", "temporal", "--park")
GPUS = [f"GPU-fa5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a00{n:02x}" for n in (0, 1)]
MEMORY_MIB = 2048


class TwoGpus(Machine):
    """Its arena has room for one program once: what is lost of it is missed at the next park."""

    daemon_is = (str(HERE / "checkpointing_daemon.py"),)

    def place(self) -> str:
        """The GPU that the only program's memory is on, as the stand-in counts it (tests/fakecuda/share.c)."""
        counts = memoryview((self.folder / "memory").read_bytes()).cast("Q")
        used = [sum(counts[device::16]) for device in range(len(GPUS))]
        (where,) = (gpu for gpu, size in zip(GPUS, used, strict=True) if size >= 40 * MIB)
        return where

    def migrate(self, program: Program, gpu: int) -> str:
        """What the events say of it in the end."""
        until(lambda: self.parking(program.pid)["parkable_bytes"])
        before = len(self.told(program.pid))
        changed, skipped = self.verb("migrate", program.pid, gpu=str(gpu))
        assert changed, skipped
        until(lambda: _ends(self.told(program.pid)[before:]))
        until(lambda: self.parking(program.pid)["state"] == "home")
        return _ends(self.told(program.pid)[before:])


def _ends(told: list[str]) -> str:
    return next((text for text in told if ("moved from GPU" in text and "back" in text) or "is not moved" in text), "")


@pytest.fixture(params=after_first(["the new UUID", "the old UUID"]))
def machine(folder: Path, control: Path, request: pytest.FixtureRequest) -> Iterator[TwoGpus]:
    """What cuDeviceGetUuid answers after a move is an assumption, so both."""
    path = os.pathsep.join(filter(None, (str(HERE / "standin_libcuda"), os.environ.get("PYTHONPATH", ""))))
    more = {"FAKECUDA_OLD_UUID": "1"} if request.param == "the old UUID" else {}
    machine = TwoGpus(
        folder,
        control,
        64,
        PYTHONPATH=path,
        FAKECUDA_DEVICES="2",
        FAKECUDA_CHECKPOINTS="1",
        FAKECUDA_CHECKPOINT_REFUSE=str(folder / "refuse"),
        FAKECUDA_CONTEXT="300",
        FAKECUDA_MEMORY=str(MEMORY_MIB << 20),
        FAKECUDA_SHARED=str(folder / "memory"),
        **more,
    )
    yield machine
    machine.close()
    end_mps(folder, control)


def test_there_and_back_the_bytes_are_the_same_and_ps_names_the_gpu(machine: TwoGpus) -> None:
    program = machine.run(*TEMPORAL)
    for gpu in (1, 0, 1, 0):
        assert f"moved from {GPUS[1 - gpu]} to {GPUS[gpu]}" in machine.migrate(program, gpu)
        assert machine.seen(program.pid)["gpus"] == [GPUS[gpu]]
        assert machine.place() == GPUS[gpu]
        assert program.do("same") == "same"
        assert program.do("launch") == "launched"
        changed, _ = machine.verb("park", program.pid)
        assert changed
        assert program.do("same") == "same"


def test_a_program_that_launches_all_the_while_loses_no_launch(machine: TwoGpus) -> None:
    program = machine.run(*TEMPORAL)
    answers: list[str] = []
    ends = threading.Event()

    def launch() -> None:
        while not ends.is_set():
            answers.append(program.do("launch"))

    thread = threading.Thread(target=launch)
    thread.start()
    try:
        for gpu in (1, 0, 1, 0, 1, 0):
            assert f"moved from {GPUS[1 - gpu]} to {GPUS[gpu]}" in machine.migrate(program, gpu)
            moved = len(answers)
            until(lambda moved=moved: len(answers) > moved)  # type: ignore[misc]
    finally:
        ends.set()
        thread.join()
    assert set(answers) == {"launched"}
    assert program.do("same") == "same"


def test_a_move_is_not_lazy_and_who_was_parked_lazily_stays(machine: TwoGpus) -> None:
    """The driver's checkpoint loses host memory that the GPU maps, and the program with it."""
    program = machine.run(*TEMPORAL)
    machine.config.write_text('[park]\narena = "256M"\nlazy = true\n', encoding="utf-8")
    machine.kill()
    machine.start()
    until(lambda: machine.seen(program.pid).get("gpus"))
    assert f"moved from {GPUS[0]} to {GPUS[1]}" in machine.migrate(program, 1)
    assert program.do("same") == "same"
    changed, skipped = machine.verb("park", program.pid)
    assert changed, skipped
    assert program.do("launch") == "launched"
    until(lambda: machine.parking(program.pid)["state"] == "home")
    changed, skipped = machine.verb("migrate", program.pid, gpu="0")
    assert not changed
    assert "which the driver's checkpoint loses" in skipped[0]["reason"]
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


def test_a_driver_that_refuses_leaves_it_where_it_was(machine: TwoGpus) -> None:
    program = machine.run(*TEMPORAL)
    (machine.folder / "refuse").touch()
    assert "is not moved, nothing is lost: the driver cannot checkpoint" in machine.migrate(program, 1)
    assert machine.seen(program.pid)["gpus"] == [GPUS[0]]
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


@pytest.mark.parametrize("left", [200, 320], ids=["for its context", "for its memory"])
def test_where_the_other_gpu_has_no_room_it_comes_back(machine: TwoGpus, left: int) -> None:
    program = machine.run(*TEMPORAL)
    (machine.folder / "taken").write_text(f"{(MEMORY_MIB - left) << 20} 1", encoding="utf-8")
    assert "no room for it" in machine.migrate(program, 1)
    assert machine.seen(program.pid)["gpus"] == [GPUS[0]]
    assert program.do("launch") == "launched"
    assert program.do("same") == "same"


def test_the_spatial_lane_is_refused(machine: TwoGpus) -> None:
    program = machine.run(*SPATIAL)
    until(lambda: machine.seen(program.pid).get("gpus"))
    changed, skipped = machine.verb("migrate", program.pid, gpu="1")
    assert not changed
    assert "it is in the spatial lane" in skipped[0]["reason"]
    assert program.do("same") == "same"


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(2))
def test_a_daemon_that_is_killed_in_a_move_loses_nothing(machine: TwoGpus, seed: int) -> None:
    dice = random.Random(seed)
    program = machine.run(*TEMPORAL)
    for _ in range(3):
        until(lambda: machine.seen(program.pid).get("gpus"))
        here = GPUS.index(machine.seen(program.pid)["gpus"][0])
        machine.verb("migrate", program.pid, gpu=str(1 - here))
        time.sleep(dice.random() * 0.5)  # any point of it
        machine.kill()
        machine.start()
        program.ask("launch")
        assert program.answer() == "launched"
        assert program.do("same") == "same"
        until(lambda: machine.parking(program.pid)["state"] == "home")
        assert machine.seen(program.pid)["gpus"] == [machine.place()]
        changed, skipped = machine.verb("park", program.pid)
        assert changed, skipped
        assert program.do("same") == "same"
