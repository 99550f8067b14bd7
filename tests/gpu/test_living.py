# SPDX-License-Identifier: Apache-2.0
"""A living CUDA program on this machine's GPU: adopted, steered, stopped, put back. Needs root; no PyTorch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core.snapshot import Program, State
from detshare.ctl.rm.kernel import KernelDriver
from detshare.tools.bench import catalog
from detshare.tools.bench import process as bench

pytestmark = pytest.mark.gpu


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RootBackend]:
    made = RootBackend(KernelDriver(), tmp_path)
    yield made
    made.close()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[bench.Program]:
    """Integer kernels whose answers are known and checked."""
    lines: list[dict[str, object]] = []
    program = bench.Program("verify", catalog.kernels("verify"), {"KERNELS_CACHE": str(tmp_path)}, lines.append)
    program.ready()
    yield program
    program.end()


def found(backend: RootBackend, victim: bench.Program) -> Program:
    """The victim at the first look that shows it whole."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        for program in backend.look().programs:
            if program.id.pid == victim.pid and program.compute:
                return program
        time.sleep(0.1)
    raise AssertionError("the program was not adopted within 5 s")


def moves(victim: bench.Program, seconds: float = 1.5) -> bool:
    """Whether the victim finishes windows."""
    before = len(victim.lines("window"))
    time.sleep(seconds)
    return len(victim.lines("window")) > before


def test_adopt_steer_and_put_back(backend: RootBackend, victim: bench.Program) -> None:
    before = found(backend, victim)
    assert before.state is State.RUNNING
    assert before.adopted_ms is not None
    who = str(victim.pid)
    assert backend.set_priority(who, "high").changed
    assert found(backend, victim).compute[0].slice_us == 20_000
    assert backend.release(who).changed
    assert [t.slice_us for t in found(backend, victim).tsgs] == [t.slice_us for t in before.tsgs]


def test_one_resume_ends_a_pause_however_often_it_was_asked_for(backend: RootBackend, victim: bench.Program) -> None:
    found(backend, victim)
    who = str(victim.pid)
    for _ in range(3):
        assert backend.pause(who).changed
        backend.look()
    assert not moves(victim)
    assert backend.resume(who).changed
    assert moves(victim)
    assert victim.stop()["wrong"] == 0
