# SPDX-License-Identifier: Apache-2.0
"""The driver's checkpoint, and who makes its calls killed before each of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from checkpoint_machine import GPUS, Machine, children, machine_in
from spatial_lane import Lane

from detshare.ctl.checkpoint.child import moved_mark
from tests.patience import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def machine(folder: Path, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    yield from machine_in(folder, lane, monkeypatch)


@pytest.mark.parametrize("both", [False, True], ids=["its child", "its child and the daemon"])
@pytest.mark.parametrize("stops", ["lock", "checkpoint", "restore", "restored", "unlock"])
def test_who_is_killed_in_a_move_is_known_where_it_is(machine: Machine, stops: str, both: bool) -> None:
    """Before each of the driver's calls, and before the restore is answered."""
    pid = machine.run(stops=stops)
    machine.do("migrate", pid, gpu="1")
    until(lambda: children() and machine.state(pid) == {"lock": 0, "restore": 2}.get(stops, 1))
    there = stops in ("restored", "unlock")
    until(lambda: not there or machine.gpu(pid) == GPUS[1].uuid)  # the call is noted before it is done
    (child,) = children()
    if both:
        machine.checkpoints._act = Mock(side_effect=SystemError("it is killed"))
    os.kill(child, signal.SIGKILL)
    machine.behave(pid, stops="")
    if both:
        until(lambda: not machine.checkpoints._running)
        machine.start()
    until(lambda: any(machine.hears(words) for words in ("nothing is lost", "found again", "moved from")))
    if machine.where(pid) == "parked":
        machine.do("resume", pid)
    until(lambda: machine.where(pid) == "home")
    assert (machine.gpu(pid), machine.state(pid)) == (GPUS[there].uuid, 0)
    assert machine.moved == there * [GPUS[1].uuid]
    assert machine.hears(f"moved from {GPUS[0].uuid} to {GPUS[1].uuid}") is (there and not both)
    assert not moved_mark(machine.folder / "checkpoints.lock", *machine.programs[0].id).exists()


@pytest.mark.parametrize(
    "content", [b"", b"[", b"{}x", b"[" * 100_000, b"null", b'[{"id": [1e999, 1], "gpus": []}]', b'[{"id": [1, 1]}]']
)
def test_a_journal_that_is_none_stops_no_daemon_and_resume_finds_them(machine: Machine, content: bytes) -> None:
    pid = machine.run()
    machine.do("park", pid)
    until(lambda: machine.where(pid) == "parked")
    machine.checkpoints.close(restore=False)
    (machine.folder / "checkpoints.json").write_bytes(content)
    machine.start()
    assert machine.hears("cannot be read: programs that it names are found by resume PID")
    machine.programs.clear()
    machine.lanes.look()
    assert machine.do("resume", pid).changed
    until(lambda: machine.hears("runs again"))
    assert machine.state(pid) == 0
