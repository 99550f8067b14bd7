# SPDX-License-Identifier: Apache-2.0
"""The experiments on parked memory, played on the stand-in for libcuda: daemon, `detshare run`, library, workload."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builds import FAKECUDA, ROOT, made

from detshare.tools import results
from detshare.tools.bench.catalog import compat
from detshare.tools.bench.parking import (
    checkpoint,
    holder,
    migrate,
    models,
    oversubscribe,
    park,
    park_compat,
    park_deep,
    park_faults,
    park_incremental,
    park_lazy,
    room,
)
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.steer import Steer, SteerError
from tests.patience import run
from tests.rest import after_first

pytestmark = pytest.mark.e2e


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    made("runtime")
    made("fakecuda")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKECUDA))
    # the daemon of a machine without GPU lists programs of the spatial lane only; that needs a stand-in for MPS
    control = tmp_path / "nvidia-cuda-mps-control"
    fake = ROOT / "tests" / "unit" / "spatial" / "fake_mps.py"
    control.write_text(f"#!{sys.executable} -S\n{fake.read_text()}")
    control.chmod(0o755)
    monkeypatch.setenv("DETSHARE_MPS_CONTROL", str(control))
    monkeypatch.setattr(holder, "LANE", "spatial")
    monkeypatch.setattr(holder, "LONGEST", 30.0)
    with Session(Options("park", 1.0, 1, tmp_path / "out")) as session:
        session.steer = Steer(session.folder / "run", "model")
        yield session


def rows(session: Session) -> dict[str, tuple[float, bool | None]]:
    return {row.what: (row.value, row.ok) for row in session.rows}


class MovingSteer(Steer):
    """A daemon that says it moved whom it was told to; the stand-in of the bench has one GPU and no checkpoint."""

    refuses = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "model")
        self.moves: list[tuple[int, str]] = []

    def ps(self) -> dict[str, Any]:
        return {"proof": "model", "gpus": [{"uuid": f"GPU-{n}", "name": "H200"} for n in (0, 1)]}

    def verb(self, name: str, pid: int, **arguments: object) -> dict[str, Any]:
        assert name == "migrate"
        if not self.refuses:
            self.moves.append((pid, str(arguments["gpu"])))
        return {"changed": [{"pid": pid}]}

    def program(self, pid: int) -> dict[str, Any] | None:
        mine = [gpu for who, gpu in self.moves if who == pid]
        parking = {"state": "home", "parks": len(mine), "resume_ms": 900.0, "parkable_bytes": 1}
        where = [mine[-1] if mine else "GPU-0"]
        return {"pid": pid, "gpus": where, "parking": parking, "notes": ["park: the GPU has no room for it"]}


@pytest.fixture
def moving(session: Session, monkeypatch: pytest.MonkeyPatch) -> MovingSteer:
    for name, value in (("SIZE_MIB", 8), ("HOLD_MIB", 2), ("REST_S", 0.02), ("KINDS", ("words",))):
        monkeypatch.setattr(migrate, name, value)
    # a run without a daemon is the plain one: who moves whom is said by this one
    monkeypatch.setattr(migrate, "WAYS", tuple(replace(way, park=False) for way in migrate.WAYS))
    session.steer = steer = MovingSteer(session.folder / "run")
    session.options = replace(session.options, seconds=0.5, rounds=3, budget=600.0)
    monkeypatch.setattr(steer, "start", lambda: None)
    monkeypatch.setattr(migrate.Mover, "_told", lambda mover: ["told"])
    return steer


def test_programs_that_move_keep_their_bits(session: Session, moving: MovingSteer) -> None:
    migrate.run(session)
    found = rows(session)
    for way in (", under the library", ""):
        assert found[f"0.0078125 GiB{way}: moves"] == (2, True)
        assert found[f"words{way}: moves while it worked"][0] >= 1
        assert found[f"0.0078125 GiB{way}: moves after which memory differed"] == (0, True)
        assert found[f"words{way}: the result differs from alone"] == (0, True)
    assert found["0.0078125 GiB: a move, by the driver: p50"] == (pytest.approx(0.9), True)
    assert {gpu for _, gpu in moving.moves} == {"GPU-0", "GPU-1"}


def test_moves_go_on_from_what_an_earlier_run_measured(
    session: Session, moving: MovingSteer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.options = replace(session.options, name="migrate", parts=("library-memory", "library-words"))
    migrate.run(session)
    assert " --rounds 3 --part library-memory --part library-words" in session.options.command
    before, earlier = rows(session), session.write()
    moving.moves.clear()
    monkeypatch.setattr(migrate, "alone", lambda session, kinds, rounds: {} if not kinds else pytest.fail("again"))
    with Session(replace(session.options, parts=("library-words", "driver-words"), resume=earlier)) as later:
        later.steer = moving
        migrate.run(later)
        found = rows(later)
        assert len({pid for pid, _ in moving.moves}) == 1  # what was measured is not measured again
        assert {what: found[what] for what in before} == before
        assert set(found) - set(before) >= {"words: the result differs from alone"}
        whole = later.write()
    with gzip.open(whole.parent / "raw" / "migrate.jsonl.gz", "rt") as stream:
        jobs = {line["program"] for line in map(json.loads, stream) if line["event"] == "result"}
    assert jobs == {"words, alone", "words, moved, under the library", "words, moved"}


@pytest.mark.parametrize(
    ("commit", "machine", "rounds", "why"),
    [
        ("0badcafe", "", 3, "was measured at 0badcafe"),
        ("", "2 x another", 3, "was measured on another machine: 2 x another"),
        ("", "", 4, "has other rounds"),
    ],
)
def test_what_was_measured_otherwise_is_not_taken_over(
    session: Session,
    moving: MovingSteer,
    monkeypatch: pytest.MonkeyPatch,
    commit: str,
    machine: str,
    rounds: int,
    why: str,
) -> None:
    session.options = replace(session.options, name="migrate")
    session.proof = "model"
    session.row("words: moves while it worked", 6, "")
    with monkeypatch.context() as measured:
        if commit:
            measured.setenv("DETSHARE_COMMIT", commit)
        if machine:
            measured.setattr(results, "machine", lambda: machine)
        earlier = session.write()
    session.options = replace(session.options, resume=earlier, rounds=rounds)
    with pytest.raises(ProgramError, match=f"--resume .*migrate.json.* {why}"):
        migrate.run(session)


def test_a_move_that_is_refused_ends_it(session: Session, moving: MovingSteer) -> None:
    moving.refuses = True
    with pytest.raises(SteerError, match="was not moved: park: the GPU has no room for it; told"):
        migrate.memory(session, moving.ps()["gpus"], migrate.WAYS[1], 1, 60.0)


def test_each_part_of_the_moves_has_its_share_of_the_time(session: Session) -> None:
    session.options = replace(session.options, budget=session.elapsed + 660.0)
    assert migrate._until(session, 6) == pytest.approx(550.0, abs=1.0)
    assert migrate._until(session, 1) == migrate.LEAST_S


def test_park_beside_the_other_ways(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(park, "SIZES_MIB", (8,))
    monkeypatch.setattr(park, "CHUNK_MIB", 4)
    park.run(session)
    found = rows(session)
    for what in ("plain pinned copies, away", "managed memory, prefetched, back", "park", "resume"):
        assert found[f"8 MiB: {what}"][0] > 0
    # the stand-in has no checkpoint: it is left out
    assert not any("checkpoint" in what for what in found)
    assert found["8 MiB: copied of what was parked, least"] == (1, True)
    assert found["8 MiB: memory that differs at the end"] == (0, True)
    written = json.loads(session.write().read_text())
    assert written["proof"] == "model"


def test_what_changed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SIZE_MIB", 32), ("CHUNK_MIB", 4), ("EPOCHS", 6), ("EPOCH_MIB", 16)):
        monkeypatch.setattr(park_incremental, name, value)
    park_incremental.run(session)
    found = rows(session)
    assert found["the first park: copied of what was parked"] == (1, True)
    assert found["nothing changed: copied of what was parked"][0] <= 1 / 16
    assert found["10 % changed: copied of what was parked"][0] <= 3 / 16
    assert found["everything changed: copied of what was parked"][0] == 1
    assert found["memory that differs afterwards"] == (0, True)
    assert found["epochs after which the memory differed"] == (0, True)
    assert found["epochs"] == (6, True)
    assert all(ok for what, (_, ok) in found.items() if "for want of digests" in what)


def test_a_size_for_which_there_is_no_room_is_left_out(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(park, "SIZES_MIB", (8, 1 << 30))
    monkeypatch.setattr(park, "CHUNK_MIB", 4)
    park.run(session)
    assert rows(session)[f"{1 << 20} GiB: left out"] == (1, None)


def test_a_driver_without_checkpoints_is_told() -> None:
    command = [sys.executable, "-m", checkpoint.__name__, "1"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKECUDA)}
    made("fakecuda")
    done = run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "cuCheckpointProcessLock gave 801" in done.stderr


class CheckpointingSteer(Steer):
    """A daemon that has the stand-in's checkpoint."""

    daemon = (str(ROOT / "tests" / "unit" / "spatial" / "checkpointing_daemon.py"),)


@pytest.mark.parametrize("reservations", after_first(["1", "0"]))
def test_deep_parks_and_what_outlives_them(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reservations: str
) -> None:
    bindings = ROOT / "tests" / "unit" / "spatial" / "standin_libcuda"
    for name, value in {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(bindings), os.environ.get("PYTHONPATH", "")))),
        "FAKECUDA_CHECKPOINTS": "1",
        "FAKECUDA_CHECKPOINT_US": "200000",
        "FAKECUDA_CHECKPOINT_RESERVATIONS": reservations,
        "FAKECUDA_CONTEXT": "300",
        "FAKECUDA_SHARED": str(tmp_path / "memory"),
    }.items():
        monkeypatch.setenv(name, value)
    for name, value in (("SIZE_MIB", 64), ("CHUNK_MIB", 4)):
        monkeypatch.setattr(park_deep, name, value)
    monkeypatch.setattr(holder, "LANE", "temporal")
    if reservations == "0":
        monkeypatch.setattr(park_deep, "deep", lambda *_: None)  # it would wait for addresses that are gone
    session.steer = CheckpointingSteer(session.folder / "run", "model")
    park_deep.run(session)
    found = rows(session)
    assert found["empty reservations of addresses: lost by the driver's checkpoint"] == (
        float(reservations == "0"),
        reservations == "1",
    )
    assert found["pinned host memory: lost by the driver's checkpoint"] == (0, True)
    assert found["memory that could be exported: lost by the driver's checkpoint"] == (0, None)
    assert "memory that another process maps: lost by the driver's checkpoint" in found
    if reservations == "0":
        return
    assert found["64 MiB: on the GPU before"][0] == pytest.approx(364, abs=1)
    assert found["64 MiB: on the GPU after a park by the library alone"][0] == pytest.approx(300, abs=1)
    assert found["64 MiB: on the GPU after a deep park, as others see it"] == (0, True)
    assert found["64 MiB: deep park and resume"][0] > 0.4
    assert found["64 MiB: memory that differs at the end"] == (0, True)


@pytest.mark.rest
def test_a_program_runs_while_its_memory_comes_home(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(park_lazy, "CHUNK_MIB", 4)
    session.options = replace(session.options, rounds=2, mib=256, budget=600.0)
    park_lazy.run(session)
    found = rows(session)
    assert found["0.25 GiB: the first kernel"][0] > 0
    assert found["0.25 GiB: all home"][0] > 0
    assert found["0.25 GiB: memory that differs at the end"] == (0, True)


@pytest.mark.rest
def test_programs_that_are_parked_at_random_points(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(park_compat, "LANES", ("spatial",))
    monkeypatch.setattr(park_compat, "PROGRAMS", {"IPC": (compat("ipc_app"), {})})
    monkeypatch.setattr(park_compat, "GAP_S", (0.0, 0.03))
    session.options = replace(session.options, rounds=5)
    park_compat.run(session)
    found = rows(session)
    (parks,) = (row for what, row in found.items() if what.startswith("IPC, spatial: parks, of "))
    assert parks[0] >= 1, found
    assert found["IPC, spatial: outputs that differ from never parked"] == (0, True)


def test_a_program_whose_bits_change_is_found(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(park_compat, "LANES", ("spatial",))
    monkeypatch.setattr(park_compat, "PROGRAMS", {"IPC": (compat("ipc_app"), {})})
    monkeypatch.setattr(park_compat, "ROUNDS_A_PARK", 1)
    # the parked one does less
    monkeypatch.setattr(park_compat, "environment", lambda parks, pause, _more: {"CASE_ROUNDS": str(5 - bool(pause))})
    park_compat.run(session)
    assert rows(session)["IPC, spatial: outputs that differ from never parked"] == (1, False)


@pytest.fixture
def small(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """One GPU of 128 MiB for all, of which programs have 100."""
    monkeypatch.setenv("FAKECUDA_MEMORY", str(128 << 20))
    monkeypatch.setenv("FAKECUDA_SHARED", str(tmp_path / "memory"))
    monkeypatch.setattr(room, "CONTEXT_MIB", 0)
    session.options = replace(session.options, mib=100)
    return session


@pytest.mark.rest
def test_more_than_fits(small: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    small.options = replace(small.options, seconds=3.0)  # parks are counted by the daemon's looks, one a second
    argv = oversubscribe.argv
    monkeypatch.setattr(oversubscribe, "argv", lambda _kind, hold: argv("words", hold))
    monkeypatch.setattr(oversubscribe, "LANE", "spatial")
    monkeypatch.setattr(oversubscribe, "DECODE_MIB", 4)
    oversubscribe.run(small)
    found = rows(small)
    assert found["jobs that finished"] == (3, True)
    assert found["jobs whose results differ from alone"] == (0, True)
    assert found["parks"][1]
    assert found["work a second beside one after the other"][0] > 0


@pytest.mark.rest
def test_models_of_which_two_fit(small: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Path(__file__).with_name("fake_model_server.py")
    monkeypatch.setattr(models, "argv", lambda mib, seed: [sys.executable, str(fake), str(mib), str(seed)])
    for name, value in (
        ("LANE", "spatial"),
        ("BESIDE_MIB", 8),
        ("AFTER_S", 0.3),
        ("GAP_S", (0.0, 0.5)),
        ("STAGGER_S", 0),
    ):
        monkeypatch.setattr(models, name, value)
    small.options = replace(small.options, rounds=2)
    models.run(small)
    found = rows(small)
    assert found["requests"] == (8, True)
    assert found["answers that differ from those before any park, or without DetShare"] == (0, True)
    assert sum(value for what, (value, _) in found.items() if what.startswith("parked") and "requests" in what) > 0
    assert found["all but one unloaded: to the first token, p50"][0] > 0


@pytest.mark.rest
def test_kills_in_the_middle_of_parks(small: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SIZE_MIB", 8), ("CHUNK_MIB", 4), ("BATCH", 2), ("WINDOW_S", (0.0, 0.1))):
        monkeypatch.setattr(park_faults, name, value)
    small.options = replace(small.options, rounds=8)
    park_faults.run(small)
    found = rows(small)
    assert all(ok is not False for _value, ok in found.values()), found
    assert found["kills: program"][0] > 0
    assert found["kills: daemon"][0] + found["kills: daemon and guardian"][0] > 0
