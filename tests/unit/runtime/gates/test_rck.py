# SPDX-License-Identifier: Apache-2.0
"""Both sides of the resident control kernel, without a GPU: which word gates use, and how the helper ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gatekit import HOLD, ROOT, Daemon, Program

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Activity, BadBoard, create, map_file, monotonic_ns
from detshare.runtime.rck import KERNEL, find
from tests.patience import run, until

LOW = layout.CLASS_LOW
Start = Callable[..., Program]


def publish(daemon: Daemon, generation: int, handle: bytes = b"h", beat: int = 10**12) -> None:
    daemon.activity.put_raw("rck_handle", handle)
    daemon.activity.put("rck_beat", monotonic_ns() + beat)
    daemon.activity.put("rck_generation", generation)


def launch_until(program: Program, key: str) -> bool:
    """Launches, so that the poller looks; true once the count went up."""

    def again() -> bool:
        program.ask("launch 0 1 1 50")
        return program.state()[key] > 0

    return until(again)


def test_gates_wait_on_the_hosts_word_unless_asked_otherwise(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW, **(HOLD | {"gate_us": 10}))
    publish(daemon, 5)
    program = start()
    program.attach()
    assert launch_until(program, "waits")
    assert program.state()["rck"] == 0
    assert tenant.counters.get("gate_source") == 1


def test_gates_wait_on_the_kernels_word_and_come_back_when_it_dies(daemon: Daemon, start: Start) -> None:
    tenant = daemon.tenant(LOW, **(HOLD | {"gate_us": 10}))
    publish(daemon, 5)
    program = start(DETSHARE_GATE="rck")
    program.attach()
    assert launch_until(program, "rck")
    assert tenant.counters.get("gate_source") == 2
    assert tenant.slot.get("rck_generation") == 5
    program.ask("busy 0 1")
    program.ask("launch 0 1 1 1")
    daemon.activity.put("rck_beat", 0)
    # what waits on the old word is let go, and new gates use the host's
    until(lambda: program.state()["opened"] == 1)
    assert tenant.counters.get("gate_source") == 1
    assert tenant.slot.get("rck_generation") == 0
    before = program.state()["rck"]
    program.ask("launch 0 1 1 500")
    assert program.state()["rck"] == before
    program.ask("busy 0 0")


def test_a_handle_that_cannot_be_opened_is_tried_once_per_generation(daemon: Daemon, start: Start) -> None:
    daemon.tenant(LOW, **(HOLD | {"gate_us": 10}))
    publish(daemon, 5, b"bad")
    program = start(DETSHARE_GATE="rck")
    program.attach()
    assert launch_until(program, "waits")
    until(lambda: "cannot be had" in program.log)
    publish(daemon, 6)
    assert launch_until(program, "rck")
    assert program.log.count("cannot be had") == 1


def helper(board: Path, libraries: Path) -> subprocess.CompletedProcess[str]:
    return run(
        [sys.executable, "-m", "detshare.runtime.rck", "--board", str(board)],
        env=os.environ | {"LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_board_of_a_gpu_is_found_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadBoard, match="start a program by detshare run"):
        find(tmp_path, None)
    for name in ("GPU-a", "GPU-a.observed"):
        (tmp_path / f"{name}.activity").touch()
    assert find(tmp_path, None).stem == "GPU-a"
    with pytest.raises(BadBoard, match="no program of the spatial lane is on GPU-b; others: GPU-a"):
        find(tmp_path, "GPU-b")
    (tmp_path / "GPU-b.activity").touch()
    assert find(tmp_path, "GPU-b").stem == "GPU-b"
    with pytest.raises(BadBoard, match="2 GPUs: take one by --gpu: GPU-a, GPU-b"):
        find(tmp_path, None)


def test_the_helper_says_what_is_missing(tmp_path: Path) -> None:
    board = tmp_path / "x.activity"
    board.write_bytes(b"short")
    done = helper(board, tmp_path)
    assert (done.returncode, "is smaller than a board" in done.stderr) == (1, True)
    board.unlink()
    create(board).close()
    done = helper(board, tmp_path)
    assert (done.returncode, "no activity board" in done.stderr) == (1, True)
    with map_file(board, write=True) as mapped:
        activity = Activity(mapped)
        activity.init_for(b"u" * 16)
        activity.put("rck_pid", 77)
        activity.put("rck_beat", monotonic_ns() + 10**12)
        activity.put("rck_generation", 1)
        activity.close()
    done = helper(board, tmp_path)
    assert (done.returncode, "process 77 runs the resident control kernel" in done.stderr) == (1, True)


def test_the_kernels_numbers_are_those_of_the_board() -> None:
    text = KERNEL.read_text()
    stop = layout.ACTIVITY_FIELDS["rck_stop"].offset
    assert layout.ACTIVITY_FIELDS["rck_pulse"].offset == stop + 4
    assert layout.ACTIVITY_FIELDS["rck_loops"].offset == stop + 8
    assert "[%control+4]" in text
    assert "[%control+8]" in text
    # slots and device words are as far apart as the kernel's one stride
    assert layout.SLOT_SIZE == layout.RCK_STRIDE == 64
    assert "mul.wide.u32 %shift, %thread, 64;" in text
    assert layout.SLOT_FIELDS["word"].offset == 0
    assert layout.SLOTS <= 32
    assert (ROOT / "runtime" / "detshare" / "runtime" / "rck.ptx").samefile(KERNEL)


def test_the_library_without_the_kernels_folder_waits_on_the_hosts_word(
    daemon: Daemon, tmp_path: Path, without_rck: Path
) -> None:
    tenant = daemon.tenant(LOW, **(HOLD | {"gate_us": 10}))
    publish(daemon, 5)
    program = Program(without_rck, daemon, tmp_path / "log", DETSHARE_GATE="rck")
    program.attach()
    assert launch_until(program, "waits")
    assert program.state()["rck"] == 0
    assert tenant.counters.get("gate_source") == 1
    assert program.close() == 0, program.log
